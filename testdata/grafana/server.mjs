// Records which HTTP calls Grafana's Prometheus data source makes, and what its panels and editor show:
//
//   npm ci && npm run record -- URL START END CALLS PICTURE
//
// URL is where promtsd (or a Prometheus) serves the data of TestGrafana, in cmd/promtsd/e2e/prometheus, from START to END,
// in ms since 1970; that test runs all this by itself, see there. CALLS and PICTURE are the files to be written.
//
// The browser runs page.mjs: Grafana's own code, of its packages. Between it and promtsd Grafana has a server, whose part
// is played here: it hands calls of the data source's resources on, makes queries of the API out of the queries of
// panels, and frames out of their answers, in the way of Grafana's backend for Prometheus.
import { createServer } from 'node:http';
import { readFile, writeFile } from 'node:fs/promises';
import puppeteer from 'puppeteer-core';

const [target, start, end, callsFile, pictureFile] = process.argv.slice(2);
const here = new URL('.', import.meta.url);

let step = '';
const calls = new Map(); // step -> its calls, each once

// call makes one request of promtsd, and records it.
async function call(method, path, query = '', form = '') {
  const asked = path + (query && `?${query}`);
  const line = `${method} ${asked}${form && ` ${form}`}`;
  if (!calls.has(step)) calls.set(step, new Set());
  calls.get(step).add(line);
  const headers = method === 'POST' ? { 'Content-Type': 'application/x-www-form-urlencoded' } : {};
  const answer = await fetch(target + asked, { method, headers, body: method === 'POST' ? form : undefined });
  return { status: answer.status, text: await answer.text() };
}

// The backend asks by POST first, whatever the browser did, except where it knows that only GET is served; and by GET
// where POST is refused. It compares paths with a list of which some begin with a slash and some do not, so that of
// those that it gets from the browser only these are known.
async function resource(httpMethod, path, query, body) {
  const get = () => call('GET', `/${path}`, [query, body].filter(Boolean).join('&'));
  if (httpMethod === 'GET' || path.startsWith('api/v1/label/') || path.startsWith('api/v1/metadata')) return get();
  const answer = await call('POST', `/${path}`, query, body);
  return answer.status === 405 || answer.status === 400 ? get() : answer;
}

const sorted = (form) => new URLSearchParams(Object.entries(form).sort()).toString();
const duration = (ms) => (ms % 60_000 === 0 ? `${ms / 60_000}m0s` : ms > 60_000 ? `${Math.floor(ms / 60_000)}m${(ms % 60_000) / 1000}s` : `${ms / 1000}s`);
const short = (ms) => (ms % 60_000 === 0 ? `${ms / 60_000}m` : `${ms / 1000}s`);

// query answers one query of a panel: as frames, or an error.
async function query(q, from, to) {
  const least = /^\d+m$/.test(q.interval ?? '') ? parseInt(q.interval) * 60_000 : 15_000;
  const stepMs = Math.max(least, q.intervalMs);
  const expr = q.expr
    .replaceAll('$__interval', short(stepMs))
    .replaceAll('$__range', `${Math.round((to - from) / 1000)}s`)
    .replaceAll('$__rate_interval', duration(Math.max(q.intervalMs + least, 4 * least)));
  const align = (t) => (Math.floor(t / stepMs) * stepMs) / 1000;
  const range = { query: expr, start: align(from), end: align(to) };
  const answers = [];
  if (q.instant) answers.push(await call('POST', '/api/v1/query', '', sorted({ query: expr, time: to / 1000 })));
  if (q.range || !q.instant) answers.push(await call('POST', '/api/v1/query_range', '', sorted({ ...range, step: stepMs / 1000 })));
  if (q.exemplar) await call('POST', '/api/v1/query_exemplars', '', sorted(range));
  const frames = [];
  for (const { text } of answers) {
    const answer = JSON.parse(text);
    if (answer.status !== 'success') return { status: 400, error: answer.error, frames: [] };
    const { resultType, result } = answer.data;
    for (const series of resultType === 'scalar' || resultType === 'string' ? [{ metric: {}, value: result }] : result) {
      const points = series.values ?? [series.value];
      const name = q.legendFormat?.replace(/{{\s*(.+?)\s*}}/g, (_, l) => series.metric[l] ?? '');
      frames.push({
        schema: {
          refId: q.refId, meta: { type: 'timeseries-multi', typeVersion: [0, 1], custom: { resultType } },
          fields: [
            { name: 'Time', type: 'time', typeInfo: { frame: 'time.Time' }, config: { interval: stepMs } },
            { name: 'Value', type: 'number', typeInfo: { frame: 'float64' }, labels: series.metric,
              config: name && name !== '__auto' ? { displayNameFromDS: name } : {} },
          ],
        },
        data: { values: [points.map(([t]) => t * 1000), points.map(([, v]) => Number(v))] },
      });
    }
  }
  return { status: 200, frames };
}

async function serve(req) {
  const url = new URL(req.url, 'http://grafana');
  let body = '';
  for await (const piece of req) body += piece;
  const json = (status, value) => ({ status, type: 'application/json', text: typeof value === 'string' ? value : JSON.stringify(value) });
  switch (url.pathname) {
    case '/':
      return { status: 200, type: 'text/html', text: `<!doctype html><link rel=stylesheet href=page.css><div id=root></div>
        <script>window.recording = { start: ${start}, end: ${end} }; window.grafanaBootData =
        { assets: {}, settings: { featureToggles: {} }, user: { theme: 'dark', orgId: 1 }, navTree: [] };</script><script src=page.js></script>` };
    case '/page.js':
    case '/page.css':
      return { status: 200, type: url.pathname.endsWith('js') ? 'text/javascript' : 'text/css', text: await readFile(new URL(`.${url.pathname}`, here), 'utf8') };
    case '/api/ds/query': {
      const { queries, from, to } = JSON.parse(body);
      const results = {};
      for (const q of queries) results[q.refId] = await query(q, Number(from), Number(to));
      const failed = Object.values(results).some((r) => r.error);
      return json(failed ? 400 : 200, { results });
    }
    case '/api/datasources/uid/promtsd/health': {
      const health = await call('POST', '/api/v1/query', '', sorted({ query: '1+1', time: 4 }));
      const build = await resource('POST', 'api/v1/status/buildinfo', '', '');
      const ok = health.status === 200 && build.status === 200;
      return json(ok ? 200 : 400, { status: ok ? 'OK' : 'ERROR', message: health.text });
    }
  }
  const path = url.pathname.match(/^\/api\/datasources\/uid\/promtsd\/resources\/(.*)$/)?.[1];
  if (path === undefined) return { status: 404, type: 'text/plain', text: url.pathname };
  const method = step.endsWith('set to GET') ? 'GET' : 'POST';
  const { status, text } = await resource(method, path, url.search.slice(1), body);
  return json(status, text);
}

const server = createServer((req, res) => {
  serve(req).then(
    ({ status, type, text }) => res.writeHead(status, { 'Content-Type': type }).end(text),
    (err) => res.writeHead(500, { 'Content-Type': 'text/plain' }).end(String(err)),
  );
});
await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
const browser = await puppeteer.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu'],
  defaultViewport: { width: 1200, height: 690 },
});
try {
  const page = await browser.newPage();
  page.on('pageerror', (err) => console.error('page:', err.message));
  await page.goto(`http://127.0.0.1:${server.address().port}/`);
  for (const name of await page.evaluate(() => window.steps)) {
    step = name;
    console.log(`${name}: ${await page.evaluate((s) => window.take(s), name)}`);
  }
  step = 'The query builder is used';
  await page.evaluate(() => window.show());
  const quiet = () => page.waitForNetworkIdle({ idleTime: 1000, timeout: 60_000 });
  await quiet();
  await page.click('[data-testid="data-testid metric select"]');
  await quiet();
  await page.keyboard.press('Escape');
  await page.click('#prometheus-dimensions-filter-item-key');
  await quiet();
  await page.keyboard.press('Escape');
  await page.click('#prometheus-dimensions-filter-item-value'); // its list stays open, for the picture
  await quiet();
  await page.screenshot({ path: pictureFile });
} finally {
  await browser.close();
  server.close();
}
await writeFile(callsFile, [...calls].map(([name, lines]) => `# ${name}\n${[...lines].sort().join('\n')}\n`).join('\n'));
