# docker build -t promtsd . && docker run -p 9201:9201 -v promtsd:/data promtsd
# cmd/promtsd/docker_test.go holds this file to what it says.

FROM golang:1.26 AS build
WORKDIR /src
# Modules first: they change less often than the code, and are then taken from the cache.
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# Without cgo the program is static and runs on an empty image.
RUN CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o /out/promtsd ./cmd/promtsd
# A new volume takes owner and mode from the directory that it is mounted over.
RUN mkdir -p /out/data

FROM scratch
LABEL org.opencontainers.image.title="promtsd" \
      org.opencontainers.image.description="Long-term storage for Prometheus in the OpenTSDB schema" \
      org.opencontainers.image.source="https://github.com/promtsd/promtsd" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /out/promtsd /promtsd
COPY --from=build --chown=65532:65532 /out/data /data
# By number, as an empty image has no user names; not root.
USER 65532:65532
# The default --store.url is pebble:data, which is /data here.
WORKDIR /
VOLUME /data
EXPOSE 9201
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s CMD ["/promtsd", "healthcheck"]
ENTRYPOINT ["/promtsd"]
CMD ["serve"]
