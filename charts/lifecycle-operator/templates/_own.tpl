{{/*
The kinds belong to no namespace. All else that the operator reads or writes is in the namespace of the operands: that is where
it watches, and where it has rights.
*/}}
{{- define "lifecycle-operator.namespaces" -}}
{{- $namespace := .Values.operands.namespace.name }}
{{- with .Values.watchNamespaces }}
{{- if ne (join "," .) $namespace }}
{{- fail "watchNamespaces is set, but the operator works in one namespace only: name it in operands.namespace.name, and remove watchNamespaces." }}
{{- end }}
{{- end }}
{{- if eq $namespace .Release.Namespace }}
{{- fail (printf "operands.namespace.name is %s, the namespace of the release: whoever deletes it would delete the operator together with what it is to take down in order. Install the release into another namespace, such as opcore-system." $namespace) }}
{{- end }}
{{- $_ := set .Values "watchNamespaces" (list $namespace) }}
{{- end }}

{{/* What the operator is told about the operands, beyond the settings of all. */}}
{{- define "lifecycle-operator.own" -}}
{{- $operands := .Values.operands }}
env:
  - name: OPCORE_OPERAND_NAMESPACE
    value: {{ $operands.namespace.name | quote }}
  - name: OPCORE_CLASS_NAME
    value: {{ .Values.className | quote }}
  - name: OPCORE_CONFLICT_POLICIES
    value: {{ .Values.conflictPolicies | quote }}
  {{- range $variable, $image := dict "SPIRE_SERVER" "spireServer" "SPIRE_AGENT" "spireAgent" "OIDC_PROVIDER" "oidcDiscoveryProvider" "CONTROLLER_MANAGER" "spireControllerManager" "CSI_DRIVER" "spiffeCsiDriver" "CSI_REGISTRAR" "csiNodeDriverRegistrar" "SPIRE_VOLUME" "spireVolume" }}
  {{- $image = get $operands.images $image }}
  - name: OPCORE_IMAGE_{{ $variable }}
    {{- if $image.digest }}
    value: {{ printf "%s@%s" $image.repository $image.digest | quote }}
    {{- else }}
    value: {{ printf "%s:%s" $image.repository ($image.tag | default $.Chart.AppVersion) | quote }}
    {{- end }}
  {{- end }}
  - name: OPCORE_OPERAND_PULL_POLICY
    value: {{ $operands.pullPolicy | quote }}
  {{- $secrets := list }}
  {{- range $operands.pullSecrets }}{{ $secrets = append $secrets .name }}{{ end }}
  - name: OPCORE_OPERAND_PULL_SECRETS
    value: {{ join "," $secrets | quote }}
{{- end }}

{{/* The namespace of the operands. It stays: volumes with the server's data and its backups are in it. */}}
{{- define "lifecycle-operator.namespace" -}}
{{- $namespace := .root.Values.operands.namespace }}
{{- if $namespace.create }}
---
apiVersion: v1
kind: Namespace
metadata:
  {{- $annotations := merge (dict "helm.sh/resource-policy" "keep") $namespace.annotations }}
  {{- include "opcore-lib.metadata" (dict "root" .root "name" $namespace.name "cluster" true "labels" $namespace.labels "annotations" $annotations) | nindent 2 }}
{{- end }}
{{- end }}

{{/* OpenShift's router may read the certificates that Routes name. The operator cannot grant that: it reads no Secret. */}}
{{- define "lifecycle-operator.router" -}}
{{- $namespace := .root.Values.operands.namespace.name }}
{{- $name := printf "%s-router" (include "opcore-lib.fullname" .) }}
{{- with .root.Values.routerSecrets }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  {{- include "opcore-lib.metadata" (dict "root" $.root "name" $name "namespace" $namespace) | nindent 2 }}
rules:
  - apiGroups: [""]
    resources: [secrets]
    resourceNames: {{ toJson . }}
    verbs: [get, list, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  {{- include "opcore-lib.metadata" (dict "root" $.root "name" $name "namespace" $namespace) | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ $name | quote }}
subjects:
  - kind: ServiceAccount
    name: router
    namespace: openshift-ingress
{{- end }}
{{- end }}
