FROM python:3.13-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_QUIET=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
COPY requirements.txt requirements-dev.txt ./
RUN python -m venv --without-pip /opt/relay \
 && pip --python /opt/relay install --require-hashes --only-binary :all: -r requirements.txt \
 # The build backend and what it needs, with their hashes.
 && sed -n '/^\(hatchling\|packaging\|pathspec\|pluggy\|tomlkit\|trove-classifiers\)==/,/[^\\]$/p' requirements-dev.txt > backend.txt \
 && pip install --require-hashes --only-binary :all: -r backend.txt
COPY pyproject.toml README.md LICENSE ./
COPY schema schema
COPY relay relay
RUN pip wheel --no-deps --no-build-isolation --wheel-dir dist . \
 && pip --python /opt/relay install --no-deps --no-index dist/*.whl \
 && /opt/relay/bin/python -m compileall -q /opt/relay

FROM python:3.13-slim
ARG VERSION=unknown
ARG REVISION=unknown
ARG CREATED=unknown
LABEL org.opencontainers.image.title="outbox-relay" \
      org.opencontainers.image.description="Delivers jobs from PostgreSQL to webhooks: signed, retried, in order" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.created="$CREATED"
# What the base image installs packages with is of no use to a relay, and of some use to an intruder.
RUN pip uninstall --yes --quiet --root-user-action ignore pip && rm -rf /usr/local/lib/python3*/ensurepip
COPY --from=build /opt/relay /opt/relay
# In a network of its own there is nobody to fight over a port with.
ENV PATH=/opt/relay/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 RELAY_WEB_HOST=0.0.0.0 RELAY_WEB_PORT=8080
# A number, so that Kubernetes can see that it is not root.
USER 65532:65532
WORKDIR /etc/relay
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=40s --retries=3 \
  CMD ["python", "-c", "import os, urllib.request as http; http.urlopen('http://127.0.0.1:' + os.environ['RELAY_WEB_PORT'] + '/livez', timeout=4)"]
ENTRYPOINT ["relay"]
CMD ["run"]
