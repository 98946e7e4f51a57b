{{/* What never changes between versions of a release: Deployments cannot change their selector. */}}
{{- define "opcore-lib.selector" -}}
app.kubernetes.io/name: {{ include "opcore-lib.name" . | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
{{- end }}

{{- define "opcore-lib.labels" -}}
{{- $standard := include "opcore-lib.selector" . | fromYaml }}
{{- $_ := set $standard "app.kubernetes.io/managed-by" .root.Release.Service }}
{{- $_ := set $standard "app.kubernetes.io/part-of" "opcore" }}
{{- $_ := set $standard "app.kubernetes.io/version" (.root.Chart.AppVersion | replace "+" "_") }}
{{- $_ := set $standard "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-") }}
{{- toYaml (merge $standard .root.Values.commonLabels) }}
{{- end }}

{{/*
The metadata of an object. Beside `root`: `name`; `namespace`, or `cluster: true` for what belongs to none; `labels` and
`annotations` of its own, which go before the common ones.
*/}}
{{- define "opcore-lib.metadata" -}}
name: {{ .name | quote }}
{{- if not .cluster }}
namespace: {{ .namespace | default .root.Release.Namespace | quote }}
{{- end }}
labels:
  {{- toYaml (merge (dict) (.labels | default dict) (include "opcore-lib.labels" . | fromYaml)) | nindent 2 }}
{{- with merge (dict) (.annotations | default dict) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
