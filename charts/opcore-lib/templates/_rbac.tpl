{{/*
What the operator may do. Its chart says so in files/rbac.yaml, which may use templates, as three lists of rules:

    namespaced: []   in every namespace that it watches
    cluster: []      on what belongs to no namespace by nature
    release: []      in the namespace of the release only

Whoever watches some namespaces gets a Role in each of them; whoever watches all gets a ClusterRole. What every operator
needs is added here: Events about its objects, its lease, and the ownership contract.
*/}}
{{- define "opcore-lib.rbac" -}}
{{- if .root.Values.rbac.create }}
{{- $name := include "opcore-lib.fullname" . }}
{{- $clustername := include "opcore-lib.clustername" . }}
{{- $rules := include "opcore-lib.file" (dict "root" .root "path" "files/rbac.yaml" "template" true) | fromYaml }}
{{- include "opcore-lib.keys" (dict "content" $rules "known" (list "namespaced" "cluster" "release") "where" "files/rbac.yaml") }}
{{- $events := list (dict "apiGroups" (list "events.k8s.io") "resources" (list "events") "verbs" (list "create" "patch")) }}
{{- /* Nothing is written before it is known whether an ownership contract is in force. */}}
{{- $contracts := dict "apiGroups" (list "opcore.dev") "resources" (list "ownershipcontracts") "verbs" (list "list" "watch") }}
{{- $everywhere := $rules.cluster | default list }}
{{- if .root.Values.ownershipContract }}
{{- $everywhere = append $everywhere $contracts }}
{{- end }}
{{- $watched := concat ($rules.namespaced | default list) $events }}
{{- $own := $rules.release | default list }}
{{- if .root.Values.leaderElection.enabled }}
{{- $leases := dict "apiGroups" (list "coordination.k8s.io") "resources" (list "leases") }}
{{- /* Kubernetes cannot limit `create` to a name. */}}
{{- $own = append $own (merge (dict "verbs" (list "create")) $leases) }}
{{- $own = append $own (merge (dict "verbs" (list "get" "update") "resourceNames" (list $name)) $leases) }}
{{- end }}
{{- $namespaces := .root.Values.watchNamespaces | uniq }}
{{- if $namespaces }}
{{- range $namespace := $namespaces }}
{{- include "opcore-lib.role" (dict "root" $.root "name" (printf "%s-watched" $name) "namespace" $namespace "rules" $watched) }}
{{- end }}
{{- $clusterwide := false }}
{{- range (include "opcore-lib.kinds" . | fromYaml).kinds }}{{ $clusterwide = or $clusterwide .cluster }}{{ end }}
{{- if and $clusterwide (not (has "default" $namespaces)) }}
{{- /* Events about objects that belong to no namespace go there. */}}
{{- include "opcore-lib.role" (dict "root" .root "name" (printf "%s-events" $name) "namespace" "default" "rules" $events) }}
{{- end }}
{{- else }}
{{- $everywhere = concat $everywhere $watched }}
{{- end }}
{{- with $everywhere }}
{{- include "opcore-lib.role" (dict "root" $.root "name" $clustername "cluster" true "rules" .) }}
{{- end }}
{{- with $own }}
{{- include "opcore-lib.role" (dict "root" $.root "name" $name "rules" .) }}
{{- end }}
{{- end }}
{{- end }}

{{/* A Role or, with `cluster: true`, a ClusterRole, and its binding to the operator. Beside `root`: name, namespace, rules. */}}
{{- define "opcore-lib.role" -}}
{{- $kind := .cluster | default false | ternary "ClusterRole" "Role" }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}
metadata:
  {{- include "opcore-lib.metadata" . | nindent 2 }}
rules:
  {{- toYaml .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
metadata:
  {{- include "opcore-lib.metadata" . | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $kind }}
  name: {{ .name | quote }}
subjects:
  - kind: ServiceAccount
    name: {{ include "opcore-lib.serviceaccountname" . | quote }}
    namespace: {{ .root.Release.Namespace | quote }}
{{ end }}
