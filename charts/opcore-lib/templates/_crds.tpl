{{/*
The kinds of the operator, from files/crds of its chart. They are templates, not Helm's folder crds/, which is never
upgraded: a new field would be dropped without a word. With `crds.keep` they stay when the release goes, and so do all
objects of their kinds.
*/}}
{{- define "opcore-lib.crds" -}}
{{- if .root.Values.crds.install }}
{{- $keep := .root.Values.crds.keep | ternary (dict "helm.sh/resource-policy" "keep") dict }}
{{- range $path, $_ := .root.Files.Glob "files/crds/*" }}
{{- $crd := include "opcore-lib.file" (dict "root" $.root "path" $path) | fromYaml }}
{{- if ne $crd.kind "CustomResourceDefinition" }}
{{- fail (printf "%s of this chart contains no CustomResourceDefinition, but the kind %q." $path $crd.kind) }}
{{- end }}
---
apiVersion: {{ $crd.apiVersion }}
kind: {{ $crd.kind }}
metadata:
  {{- $annotations := merge (dict) $keep ($crd.metadata.annotations | default dict) }}
  {{- include "opcore-lib.metadata" (dict "root" $.root "name" $crd.metadata.name "cluster" true "annotations" $annotations "labels" $crd.metadata.labels) | nindent 2 }}
spec:
  {{- toYaml $crd.spec | nindent 2 }}
{{ end }}
{{- end }}
{{- end }}

{{/* The kinds of the operator as a list under `kinds`: group, resource, and whether it belongs to no namespace. */}}
{{- define "opcore-lib.kinds" -}}
kinds:
{{- range $path, $_ := .root.Files.Glob "files/crds/*" }}
{{- $crd := include "opcore-lib.file" (dict "root" $.root "path" $path) | fromYaml }}
  - group: {{ $crd.spec.group }}
    resource: {{ $crd.spec.names.plural }}
    cluster: {{ eq $crd.spec.scope "Cluster" }}
{{- end }}
{{- end }}
