{{/* The operator's name: the chart's, unless said otherwise. */}}
{{- define "opcore-lib.name" -}}
{{- .root.Values.nameOverride | default .root.Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* The name of what a release installs. A release that is called like its chart is not called so twice. */}}
{{- define "opcore-lib.fullname" -}}
{{- $name := include "opcore-lib.name" . }}
{{- $release := .root.Release.Name }}
{{- $both := contains $name $release | ternary $release (printf "%s-%s" $release $name) }}
{{- .root.Values.fullnameOverride | default $both | trunc 52 | trimSuffix "-" }}
{{- end }}

{{/* The name of what belongs to no namespace: releases of one name in two namespaces do not meet. */}}
{{- define "opcore-lib.clustername" -}}
{{- printf "%s:%s" .root.Release.Namespace (include "opcore-lib.fullname" .) }}
{{- end }}

{{- define "opcore-lib.serviceaccountname" -}}
{{- $account := .root.Values.serviceAccount }}
{{- $account.create | ternary ($account.name | default (include "opcore-lib.fullname" .)) ($account.name | default "default") }}
{{- end }}

{{- define "opcore-lib.image" -}}
{{- $image := .root.Values.image }}
{{- if $image.digest }}
{{- printf "%s@%s" $image.repository $image.digest }}
{{- else }}
{{- printf "%s:%s" $image.repository ($image.tag | default .root.Chart.AppVersion) }}
{{- end }}
{{- end }}
