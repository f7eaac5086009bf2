{{- /* A container: dict "root" $ "name" NAME "args" [VERB]. */ -}}
{{- define "relay.container" -}}
{{- $values := .root.Values -}}
name: {{ .name }}
image: {{ include "relay.image" .root | quote }}
imagePullPolicy: {{ $values.image.pullPolicy }}
args: {{- toYaml .args | nindent 2 }}
env:
  - name: RELAY_CONFIG
    value: /etc/relay/relay.yaml
  - name: RELAY_WEB_HOST
    value: {{ $values.web.host | quote }}
  - name: RELAY_WEB_PORT
    value: {{ $values.web.port | int | quote }}
  {{- if and (eq .name "migrate") $values.migrate.existingSecret }}
  - name: RELAY_DATABASE_DSN
    valueFrom:
      secretKeyRef:
        name: {{ $values.migrate.existingSecret }}
        key: {{ $values.migrate.key }}
  {{- end }}
  {{- with $values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $values.extraEnvFrom }}
envFrom: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext: {{- toYaml $values.securityContext | nindent 2 }}
resources: {{- toYaml $values.resources | nindent 2 }}
volumeMounts:
  - name: config
    mountPath: /etc/relay
    readOnly: true
  {{- if include "relay.sources" .root }}
  - name: files
    mountPath: {{ include "relay.mount" . }}
    readOnly: true
  {{- end }}
  {{- with $values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- /* What every pod has: dict "root" $ "config" NAME "serviceAccount" NAME. */ -}}
{{- define "relay.pod" -}}
{{- $values := .root.Values -}}
serviceAccountName: {{ .serviceAccount }}
automountServiceAccountToken: false
# Variables of Services named relay would only be noise among the relay's own.
enableServiceLinks: false
{{- with $values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
securityContext: {{- toYaml $values.podSecurityContext | nindent 2 }}
{{- with $values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
  - name: config
    configMap:
      name: {{ .config }}
  {{- with include "relay.sources" .root }}
  - name: files
    projected:
      # The group is the pod's fsGroup; PostgreSQL's library refuses keys that others may read.
      defaultMode: 0440
      sources: {{- . | nindent 8 }}
  {{- end }}
  {{- with $values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "relay.podLabels" -}}
{{- /* Without the chart's version: a newer chart alone is no reason to replace pods. */ -}}
{{- $labels := omit (include "relay.labels" .root | fromYaml) "helm.sh/chart" -}}
{{- merge (dict "app.kubernetes.io/component" .component) $labels .root.Values.podLabels | toYaml -}}
{{- end }}
