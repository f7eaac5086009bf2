{{- define "relay.name" -}}
{{ default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "relay.fullname" -}}
{{- $name := include "relay.name" . -}}
{{- $whole := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{ default $whole .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- /* What selectors match; it must never change. */ -}}
{{- define "relay.selector" -}}
app.kubernetes.io/name: {{ include "relay.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "relay.replicaSelector" -}}
{{ include "relay.selector" . }}
app.kubernetes.io/component: replica
{{- end }}

{{- define "relay.labels" -}}
{{ include "relay.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* metadata of an object: dict "root" $ "suffix" "-x" "labels" {} "annotations" {} */ -}}
{{- define "relay.metadata" -}}
name: {{ include "relay.fullname" .root }}{{ .suffix }}
namespace: {{ .root.Release.Namespace }}
labels: {{- merge (default dict .labels) (include "relay.labels" .root | fromYaml) | toYaml | nindent 2 }}
{{- with merge (dict) (default dict .annotations) .root.Values.commonAnnotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "relay.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ default $.Chart.AppVersion .tag }}{{ end -}}
{{- end -}}
{{- end }}

{{- define "relay.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ default (include "relay.fullname" .) .Values.serviceAccount.name }}
{{- else -}}
{{ default "default" .Values.serviceAccount.name }}
{{- end -}}
{{- end }}

{{- /* Hooks run before the release's own objects are there, so they bring their own. */ -}}
{{- define "relay.hook" -}}
helm.sh/hook: pre-install,pre-upgrade,pre-rollback
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}
