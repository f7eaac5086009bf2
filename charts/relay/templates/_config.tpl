{{- define "relay.mount" -}}/run/relay{{- end }}

{{- /* A reference to a key of a Secret or ConfigMap as "secrets NAME KEY" or "configmaps NAME KEY"; else nothing. */ -}}
{{- define "relay.reference" -}}
{{- if kindIs "map" . -}}
{{- with .secretKeyRef }}secrets {{ .name }} {{ .key }}{{ end -}}
{{- with .configMapKeyRef }}configmaps {{ .name }} {{ .key }}{{ end -}}
{{- end -}}
{{- end }}

{{- /* dict "key" KEY "value" VALUE: {"it": VALUE} in JSON, with every reference replaced by where its file is. */ -}}
{{- define "relay.resolved" -}}
{{- $value := .value -}}
{{- $reference := include "relay.reference" $value -}}
{{- if $reference -}}
  {{- $path := printf "%s/%s" (include "relay.mount" .) ($reference | replace " " "/") -}}
  {{- $value = ternary $path (dict "file" $path) (hasSuffix "_file" .key) -}}
{{- else if kindIs "map" $value -}}
  {{- $resolved := dict -}}
  {{- range $key, $each := $value -}}
    {{- $_ := set $resolved $key (include "relay.resolved" (dict "key" $key "value" $each) | fromJson).it -}}
  {{- end -}}
  {{- $value = $resolved -}}
{{- else if kindIs "slice" $value -}}
  {{- $resolved := list -}}
  {{- range $value -}}
    {{- $resolved = append $resolved (include "relay.resolved" (dict "key" "" "value" .) | fromJson).it -}}
  {{- end -}}
  {{- $value = $resolved -}}
{{- end -}}
{{- dict "it" $value | toJson -}}
{{- end }}

{{- /* The references in a value, one a line. */ -}}
{{- define "relay.references" -}}
{{- $reference := include "relay.reference" . -}}
{{- if $reference }}{{ $reference }}{{ "\n" }}
{{- else if or (kindIs "map" .) (kindIs "slice" .) -}}
{{- range . }}{{ include "relay.references" . }}{{ end -}}
{{- end -}}
{{- end }}

{{- define "relay.drainSeconds" -}}
{{- $replica := default dict .Values.config.replica -}}
{{- hasKey $replica "drain_s" | ternary $replica.drain_s 25 -}}
{{- end }}

{{- /* After the drain a replica takes up to ten seconds to write its last outcomes and to close its connections. */ -}}
{{- define "relay.graceSeconds" -}}
{{- $drain := include "relay.drainSeconds" . | float64 -}}
{{- $grace := default (add (ceil $drain) 15) .Values.terminationGracePeriodSeconds | int -}}
{{- if lt ($grace | float64) (addf $drain 10) -}}
  {{- fail (printf "terminationGracePeriodSeconds, %d s, must be at least config.replica.drain_s, %v s, + 10 s to write the last outcomes and close its connections; raise the one, lower the other, or leave terminationGracePeriodSeconds empty" $grace $drain) -}}
{{- end -}}
{{- $grace -}}
{{- end }}

{{- /* relay.yaml with references still in it, as JSON. */ -}}
{{- define "relay.stated" -}}
{{- $stated := deepCopy .Values.config -}}
{{- $database := default dict $stated.database -}}
{{- if and .Values.database.existingSecret $database.dsn -}}
  {{- fail "database.existingSecret and config.database.dsn are both set; the connection string comes from one of them" -}}
{{- else if .Values.database.existingSecret -}}
  {{- $_ := set $database "dsn" (dict "secretKeyRef" (dict "name" .Values.database.existingSecret "key" .Values.database.key)) -}}
{{- else if not $database.dsn -}}
  {{- fail "no database: set database.existingSecret to the name of a Secret whose key dsn is a connection string, or config.database.dsn" -}}
{{- end -}}
{{- $replica := default dict $stated.replica -}}
{{- $_ := set $replica "termination_grace_s" (include "relay.graceSeconds" . | int) -}}
{{- $_ := set $stated "database" $database -}}
{{- $_ := set $stated "replica" $replica -}}
{{- $_ := set $stated "destinations" .Values.destinations -}}
{{- include "relay.deadlines" $stated -}}
{{- $stated | toJson -}}
{{- end }}

{{- /* Fails where an attempt can outlast the drain or the lease; the relay itself would refuse to start. */ -}}
{{- define "relay.deadlines" -}}
{{- $limits := dict "drain_s" (get .replica "drain_s" | default 25) "lease_s" (get .replica "lease_s" | default 60) -}}
{{- $inherited := get (default dict .defaults) "deadline_s" | default 15 -}}
{{- $deadlines := dict "config.defaults" $inherited -}}
{{- range $name, $each := .destinations -}}
  {{- $_ := set $deadlines (printf "destinations.%s" $name) (get (default dict $each) "deadline_s" | default $inherited) -}}
{{- end -}}
{{- range $limit, $seconds := $limits -}}
  {{- range $place, $deadline := $deadlines -}}
    {{- if ge (addf $deadline 5) ($seconds | float64) -}}
      {{- fail (printf "%s.deadline_s, %v s, + 5 s must be less than config.replica.%s, %v s; lower the one or raise the other" $place $deadline $limit $seconds) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{- define "relay.yaml" -}}
{{ (include "relay.resolved" (dict "key" "" "value" (include "relay.stated" . | fromJson)) | fromJson).it | toYaml }}
{{- end }}

{{- /* The sources of the volume with every Secret's and ConfigMap's key that the configuration names. */ -}}
{{- define "relay.sources" -}}
{{- $named := list (include "relay.stated" . | fromJson) .Values.extraFiles -}}
{{- $sources := list -}}
{{- range include "relay.references" $named | trim | splitList "\n" | compact | uniq | sortAlpha -}}
  {{- $words := splitList " " . -}}
  {{- $items := list (dict "key" (last $words) "path" (join "/" $words)) -}}
  {{- $kind := ternary "secret" "configMap" (eq (first $words) "secrets") -}}
  {{- $sources = append $sources (dict $kind (dict "name" (index $words 1) "items" $items)) -}}
{{- end -}}
{{- if $sources }}{{ toYaml $sources }}{{ end -}}
{{- end }}
