// What a browser runs: Grafana's own Prometheus data source, query editor, panels and graph, from its packages. The
// session is a list of what a person makes Grafana do; each step asks the data source as Grafana itself asks it.
import { createElement as el, useEffect, useMemo, useState } from 'react';
import { createRoot } from 'react-dom/client';
import { from, lastValueFrom } from 'rxjs';
import { CoreApp, LoadingState, createTheme, dateTime, getDisplayProcessor } from '@grafana/data';
import { initPluginTranslations } from '@grafana/i18n';
import { PromQueryEditorByApp, PrometheusDatasource } from '@grafana/prometheus';
import { config, setBackendSrv, setTemplateSrv } from '@grafana/runtime';
import { GlobalStyles, PanelChrome, PortalContainer, ThemeContext, TimeSeries } from '@grafana/ui';

const { start, end } = window.recording; // ms since 1970
const range = { from: dateTime(start), to: dateTime(end), raw: { from: dateTime(start), to: dateTime(end) } };

// Grafana's HTTP client, as far as the data source uses it.
async function request({ url, method = 'GET', params, data, headers = {} }) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params ?? {})) {
    for (const one of [value].flat()) {
      if (one !== undefined) query.append(name, one);
    }
  }
  let body;
  if (method !== 'GET') {
    const form = headers['Content-Type']?.includes('form-urlencoded');
    body = form ? new URLSearchParams(Object.entries(data).filter(([, v]) => v !== undefined)) : JSON.stringify(data);
    headers = { 'Content-Type': 'application/json', ...headers };
  }
  const asked = query.size > 0 ? `${url}?${query}` : url;
  const answer = await fetch(asked, { method, headers, body });
  const result = { status: answer.status, statusText: answer.statusText, data: await answer.json(), ok: answer.ok };
  if (!answer.ok) throw { ...result, config: { url } };
  return result;
}
setBackendSrv({ fetch: (options) => from(request(options)) });
setTemplateSrv({
  getVariables: () => [],
  replace: (text) => text ?? '',
  containsTemplate: () => false,
  updateTimeRange: () => {},
});

function dataSource(jsonData) {
  return new PrometheusDatasource({
    id: 1, uid: 'promtsd', type: 'prometheus', name: 'promtsd', access: 'proxy', url: '/', meta: { id: 'prometheus' }, jsonData,
  });
}
const promtsd = dataSource({ httpMethod: 'POST', timeInterval: '15s' });

function ask(source, targets, { from = start, to = end, intervalMs = 15000 } = {}) {
  const asked = { from: dateTime(from), to: dateTime(to) };
  return lastValueFrom(source.query({
    app: CoreApp.Dashboard, requestId: 'Q1', panelId: 1, timezone: 'utc', startTime: Date.now(), scopedVars: {},
    interval: `${intervalMs / 1000}s`, intervalMs, maxDataPoints: 1000, range: { ...asked, raw: asked },
    targets: targets.map((t, i) => ({ refId: 'ABCDEF'[i], range: true, ...t })),
  }));
}

const rate = 'sum by (job) (rate(http_requests_total[$__rate_interval]))';
const p99 = 'histogram_quantile(0.99, sum by (le) (rate(http_request_duration_seconds_bucket[$__rate_interval])))';

const session = {
  'Save & test': () => promtsd.testDatasource(),
  'A dashboard opens the data source': () => promtsd.init(),
  'The query editor starts': () => promtsd.languageProvider.start(range),
  'A graph panel': () => ask(promtsd, [{ expr: rate, legendFormat: '__auto' }]),
  'A graph panel over a part of the range, one point a minute': () =>
    ask(promtsd, [{ expr: 'up', interval: '1m' }], { from: end - 600_000, intervalMs: 60_000 }),
  'A graph panel with exemplars': () => ask(promtsd, [{ expr: p99, exemplar: true }]),
  'A stat and a table panel': () =>
    ask(promtsd, [{ expr: 'up', range: false, instant: true }, { expr: 'topk(3, http_requests_total)', range: false, instant: true, format: 'table' }]),
  'A heatmap panel': () =>
    ask(promtsd, [{ expr: 'sum by (le) (increase(http_request_duration_seconds_bucket[$__interval]))', format: 'heatmap' }], { intervalMs: 60_000 }),
  'Explore: range and instant': () => ask(promtsd, [{ expr: 'http_requests_total{job="api"}', instant: true }]),
  'Explore: raw samples': () => ask(promtsd, [{ expr: 'up{job="api"}[5m]', range: false, instant: true }]),
  'The whole range as a variable': () => ask(promtsd, [{ expr: 'sum(increase(http_requests_total[$__range]))', range: false, instant: true }]),
  'A query with a fault': () => ask(promtsd, [{ expr: 'sum(' }]),
  'A metric that is not there': () => ask(promtsd, [{ expr: 'nosuch' }, { expr: 'nosuch', range: false, instant: true }]),
  'A rate of what is no counter': () => ask(promtsd, [{ expr: 'rate(up[5m])', range: false, instant: true }]),
  'Names that only UTF-8 allows': () => ask(promtsd, [{ expr: '{"queue.depth", "service.name"="shop"}' }]),
  'Variables': async () => {
    for (const query of [
      'label_names()', 'label_names(http)', 'label_values(job)', 'label_values(up, instance)', 'label_values(nosuch)',
      'label_values(http_requests_total{job="api", status=~"5.."}, route)', 'label_values({job="api"}, __name__)',
      'label_values(service.name)', 'metrics(http_.*)', 'query_result(topk(2, sum by (route) (http_requests_total)))',
      'up{job="api"}',
    ]) {
      await promtsd.metricFindQuery(query, { range });
    }
  },
  'Ad hoc filters': async () => {
    const queries = [{ refId: 'A', expr: rate }];
    await promtsd.getTagKeys({ filters: [], queries, timeRange: range });
    await promtsd.getTagKeys({ filters: [{ key: 'job', operator: '=', value: 'api' }], queries: [], timeRange: range });
    const filters = [{ key: 'status', operator: '=|', value: '200', values: ['200', '500'] }];
    await promtsd.getTagValues({ key: 'route', filters, queries, timeRange: range });
    await promtsd.getTagValues({ key: 'instance', filters: [{ key: 'job', operator: '!~', value: 'n.*' }], queries: [], timeRange: range });
  },
  'Limits that are set to none, and to little': async () => {
    await promtsd.languageProvider.queryLabelKeys(range, undefined, 0);
    await promtsd.languageProvider.queryLabelKeys(range, '{__name__="up"}', 2);
    await promtsd.languageProvider.queryLabelValues(range, 'instance', undefined, 2);
  },
  'A data source that is set to GET': async () => {
    const get = dataSource({ httpMethod: 'GET', timeInterval: '15s' });
    await get.languageProvider.start(range);
    await get.metricFindQuery('query_result(up)', { range });
    await get.metricFindQuery('up', { range });
  },
  'A data source that is set to an old Prometheus, and one to the series endpoint': async () => {
    for (const more of [{ prometheusType: 'Prometheus', prometheusVersion: '2.20.0' }, { seriesEndpoint: true }]) {
      const old = dataSource({ httpMethod: 'POST', timeInterval: '15s', ...more });
      await old.languageProvider.start(range);
      await old.metricFindQuery('label_values(up, instance)', { range });
      await old.metricFindQuery('label_names()', { range });
    }
  },
  'A data source with incremental querying, asked a minute later': async () => {
    const incremental = dataSource({ httpMethod: 'POST', timeInterval: '15s', incrementalQuerying: true });
    await ask(incremental, [{ expr: 'up' }], { from: start, to: end - 60_000 });
    await ask(incremental, [{ expr: 'up' }], { from: start + 60_000, to: end });
  },
};

// What is seen: two panels and the query editor.
const theme = createTheme({ colors: { mode: 'dark' } });
config.theme2 = theme;

function Panel({ title, width, targets, unit }) {
  const [frames, setFrames] = useState([]);
  useEffect(() => {
    ask(promtsd, targets, { intervalMs: 30_000 }).then(({ data }) => {
      data.forEach(({ fields: [, value] }, i) => {
        const color = { mode: 'fixed', fixedColor: theme.visualization.getColorByName(['green', 'yellow'][i]) };
        Object.assign(value.config, { unit, color, custom: { lineWidth: 2, fillOpacity: 10 } });
        value.display = getDisplayProcessor({ field: value, theme, timeZone: 'utc' });
      });
      setFrames(data);
    });
  }, []);
  const height = 300;
  return el(PanelChrome, {
    title, width, height, children: (w, h) => frames.length > 0 && el(TimeSeries, {
      frames, width: w, height: h, timeRange: range, timeZone: 'utc',
      legend: { displayMode: 'list', placement: 'bottom', showLegend: true, calcs: [] },
    }),
  });
}

function Editor() {
  const [query, setQuery] = useState({ refId: 'A', expr: 'sum by(job) (rate(http_requests_total{route="/cart"}[$__rate_interval]))', editorMode: 'builder' });
  const data = useMemo(() => ({ state: LoadingState.Done, series: [], timeRange: range }), []);
  return el('div', { style: { background: theme.colors.background.primary, padding: 16, marginTop: 8, border: `1px solid ${theme.colors.border.weak}` } },
    el(PromQueryEditorByApp, {
      app: CoreApp.PanelEditor, datasource: promtsd, query, onChange: setQuery, onRunQuery: () => {}, range, data, queries: [query],
    }));
}

function Page() {
  return el(ThemeContext.Provider, { value: theme },
    el(GlobalStyles), el(PortalContainer),
    el('div', { style: { padding: 8, width: 1184 } },
      el('div', { style: { display: 'flex', gap: 8 } },
        el(Panel, { title: 'Requests per second', width: 586, unit: 'reqps', targets: [{ expr: rate, legendFormat: '{{job}}' }] }),
        el(Panel, { title: 'Duration', width: 586, unit: 's', targets: [
          { expr: p99, legendFormat: 'p99' }, { expr: p99.replace('0.99', '0.5'), legendFormat: 'median' },
        ] })),
      el(Editor)));
}

// The program that drives the browser calls these.
window.steps = Object.keys(session);
window.take = async (step) => {
  try {
    return JSON.stringify(await session[step]() ?? null).slice(0, 200);
  } catch (err) {
    return `failed: ${err?.message ?? JSON.stringify(err)}`;
  }
};
window.show = async () => {
  await initPluginTranslations('grafana-prometheus');
  createRoot(document.getElementById('root')).render(el(Page));
};
