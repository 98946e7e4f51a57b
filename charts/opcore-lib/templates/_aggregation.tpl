{{/*
People who may view or edit a namespace may do so with the operator's kinds, too: the roles `view`, `edit` and `admin`
of Kubernetes take in what is labelled so. Kinds that belong to no namespace can be viewed; to edit them is for those who
were given that right by name.
*/}}
{{- define "opcore-lib.aggregation" -}}
{{- $read := list "get" "list" "watch" }}
{{- $write := list "create" "update" "patch" "delete" "deletecollection" }}
{{- $kinds := (include "opcore-lib.kinds" . | fromYaml).kinds }}
{{- if and .root.Values.rbac.create .root.Values.rbac.aggregate $kinds }}
{{- $view := list }}
{{- $edit := list }}
{{- range $kinds }}
{{- $what := dict "apiGroups" (list .group) "resources" (list .resource) }}
{{- $view = append $view (merge (dict "verbs" $read) $what) }}
{{- if not .cluster }}{{ $edit = append $edit (merge (dict "verbs" $write) $what) }}{{ end }}
{{- end }}
{{- include "opcore-lib.aggregated" (dict "root" .root "suffix" "view" "roles" (list "view" "edit" "admin") "rules" $view) }}
{{- if $edit }}
{{- include "opcore-lib.aggregated" (dict "root" .root "suffix" "edit" "roles" (list "edit" "admin") "rules" $edit) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "opcore-lib.aggregated" -}}
{{- $labels := dict }}
{{- range .roles }}{{ $_ := set $labels (printf "rbac.authorization.k8s.io/aggregate-to-%s" .) "true" }}{{ end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  {{- include "opcore-lib.metadata" (dict "root" .root "name" (printf "%s-%s" (include "opcore-lib.clustername" .) .suffix) "cluster" true "labels" $labels) | nindent 2 }}
rules:
  {{- toYaml .rules | nindent 2 }}
{{ end }}
