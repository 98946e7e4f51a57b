{{/*
Policies that the API server enforces itself, before the operator sees a request: restrictions for the authors of workspaces,
and approvals by users without the right to approve. Also the role that grants that right.
*/}}
{{- define "terraform-runner-operator.policies" -}}
{{- $name := printf "%s.%s" (include "opcore-lib.fullname" .) .root.Release.Namespace }}
{{- if .root.Values.rbac.create }}
{{- $labels := dict }}
{{- if .root.Values.rbac.aggregate }}{{ $_ := set $labels "rbac.authorization.k8s.io/aggregate-to-admin" "true" }}{{ end }}
---
# Allows to approve plans, and to reduce spec.approval of a workspace. Bind it in the namespaces where people may do this.
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  {{- include "opcore-lib.metadata" (dict "root" .root "name" (printf "%s-approve" (include "opcore-lib.clustername" .)) "cluster" true "labels" $labels) | nindent 2 }}
rules:
  - apiGroups: [infra.opr8r]
    resources: [terraformworkspaces]
    verbs: [approve]
{{- end }}
{{- if .root.Values.admissionPolicies.enabled }}
{{- if not .root.Values.authors.trusted }}
{{- include "terraform-runner-operator.policy" (dict "root" .root "name" (printf "%s.authors" $name) "spec" (include "terraform-runner-operator.authors" .)) }}
{{- end }}
{{- include "terraform-runner-operator.policy" (dict "root" .root "name" (printf "%s.approvals" $name) "spec" (include "terraform-runner-operator.approvals" .)) }}
{{- end }}
{{- end }}

{{/* A policy and its binding for the namespaces that the operator watches. Parameters: root, name, spec. */}}
{{- define "terraform-runner-operator.policy" }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  {{- include "opcore-lib.metadata" (dict "root" .root "name" .name "cluster" true) | nindent 2 }}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - apiGroups: [infra.opr8r]
        apiVersions: ["*"]
        resources: [terraformworkspaces]
        operations: [CREATE, UPDATE]
  {{- .spec | nindent 2 }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  {{- include "opcore-lib.metadata" (dict "root" .root "name" .name "cluster" true) | nindent 2 }}
spec:
  policyName: {{ .name | quote }}
  validationActions: [Deny]
  {{- with .root.Values.watchNamespaces | uniq }}
  matchResources:
    namespaceSelector:
      matchExpressions:
        - key: kubernetes.io/metadata.name
          operator: In
          values:
            {{- toYaml . | nindent 12 }}
  {{- end }}
{{- end }}

{{/* A CEL expression: whether a value is allowed. An allowed value that ends with * matches every value with this prefix. */}}
{{- define "terraform-runner-operator.among" -}}
{{- $value := .value }}
{{- $checks := list }}
{{- range .allowed }}
{{- if hasSuffix "*" . }}
{{- $checks = append $checks (printf "%s.startsWith(%s)" $value (trimSuffix "*" . | toJson)) }}
{{- else }}
{{- $checks = append $checks (printf "%s == %s" $value (toJson .)) }}
{{- end }}
{{- end }}
{{- $checks | join " || " | default "false" }}
{{- end }}

{{/* A rule for an optional field. Parameters: at, field, allowed, key. */}}
{{- define "terraform-runner-operator.rule" }}
- expression: {{ printf "!%s.hasValue() || %s.all(value, %s)" .at (printf "[%s.value()]" .at) (include "terraform-runner-operator.among" (dict "value" "value" "allowed" .allowed)) | toJson }}
  messageExpression: {{ printf "'%s: ' + %s.orValue('') + ' is not allowed; remove it, or have an administrator add it to %s, or set authors.trusted to true, in the values of the chart'" .field .at .key | toJson }}
  reason: Forbidden
{{- end }}

{{- define "terraform-runner-operator.authors" -}}
{{- $authors := .root.Values.authors -}}
matchConditions:
  # Existing specs remain valid: only a request that changes the spec is checked.
  - name: spec-is-written
    expression: "request.operation == 'CREATE' || object.spec != oldObject.spec"
variables:
  - name: pod
    expression: "object.spec.?runner.?podTemplate.?spec.orValue({})"
  - name: env
    expression: "object.spec.?env.orValue([])"
  - name: secrets
    expression: >-
      object.spec.?variablesFrom.orValue([]).exists(from, has(from.secretRef))
      || variables.env.exists(env, has(env.valueFrom) && has(env.valueFrom.secretKeyRef))
      || object.spec.?backend.?custom.?configFrom.hasValue()
      || object.spec.?backend.?managed.?adopt.hasValue()
validations:
  {{- include "terraform-runner-operator.rule" (dict "at" "object.spec.?engine.?image" "field" "spec.engine.image" "allowed" $authors.images "key" "authors.images") | trim | nindent 2 }}
  {{- include "terraform-runner-operator.rule" (dict "at" "variables.pod.?serviceAccountName" "field" "spec.runner.podTemplate.spec.serviceAccountName" "allowed" $authors.serviceAccounts "key" "authors.serviceAccounts") | trim | nindent 2 }}
  {{- include "terraform-runner-operator.rule" (dict "at" "variables.pod.?priorityClassName" "field" "spec.runner.podTemplate.spec.priorityClassName" "allowed" $authors.priorityClasses "key" "authors.priorityClasses") | trim | nindent 2 }}
  {{- include "terraform-runner-operator.rule" (dict "at" "variables.pod.?runtimeClassName" "field" "spec.runner.podTemplate.spec.runtimeClassName" "allowed" $authors.runtimeClasses "key" "authors.runtimeClasses") | trim | nindent 2 }}
  - expression: {{ printf "variables.pod.?volumes.orValue([]).all(volume, volume.all(type, type == 'name' || %s))" (include "terraform-runner-operator.among" (dict "value" "type" "allowed" $authors.volumeTypes)) | toJson }}
    message: "spec.runner.podTemplate.spec.volumes: the type of a volume is not allowed (allowed: {{ join ", " $authors.volumeTypes | default "none" }}); use another one, or have an administrator add it to authors.volumeTypes, or set authors.trusted to true, in the values of the chart"
    reason: Forbidden
  {{- if eq $authors.modules "Builtin" }}
  - expression: "has(object.spec.module.builtin)"
    message: "spec.module: only modules that are part of the operator (spec.module.builtin) are allowed; use one of them, or have an administrator set authors.modules to Any, or authors.trusted to true, in the values of the chart"
    reason: Forbidden
  # What does as much as a module: the operator refuses the same.
  - expression: "variables.env.all(env, !env.name.matches('^(HOME|TERRAFORM_CONFIG|TF_ENCRYPTION|TF_PLUGIN_CACHE_.*|TF_REATTACH_PROVIDERS)$'))"
    message: "spec.env: because of one of these Terraform may run other programs, which is allowed to those who may use modules of their own (HOME, TERRAFORM_CONFIG, TF_ENCRYPTION, TF_PLUGIN_CACHE_…, TF_REATTACH_PROVIDERS): remove it, or have an administrator set authors.modules to Any, or authors.trusted to true, in the values of the chart"
    reason: Forbidden
  - expression: >-
      variables.pod.?volumeMounts.orValue([]).all(mount, !has(mount.mountPath) || (
      mount.mountPath.startsWith('/') && !mount.mountPath.matches('(^|/)[.][.]?(/|$)')
      && !mount.mountPath.matches('^/+((bin|boot|dev|etc|home|lib[^/]*|opt|proc|root|run|sbin|sys|tf-runner|tmp|usr)(/|$)|$)')
      && !mount.mountPath.matches('^/+var(/+run(/+(inputs|previous|tools|work)(/.*)?)?)?/*$')))
    message: "spec.runner.podTemplate.spec.volumeMounts: where one of these is mounted a program may be, so that a volume could replace it, which is allowed to those who may use modules of their own: choose another mountPath, such as one below /srv, or have an administrator set authors.modules to Any, or authors.trusted to true, in the values of the chart"
    reason: Forbidden
  {{- end }}
  {{- if eq $authors.secrets "Readable" }}
  - expression: "!variables.secrets || authorizer.group('').resource('secrets').namespace(request.namespace).check('get').allowed()"
    messageExpression: "'spec: it refers to Secrets, but ' + request.userInfo.username + ' is not allowed to get secrets in namespace ' + request.namespace + '; request a role that allows it, or have an administrator set authors.secrets to Any, or authors.trusted to true, in the values of the chart'"
    reason: Forbidden
  {{- end }}
{{- end }}

{{- define "terraform-runner-operator.approvals" -}}
variables:
  - name: right
    expression: "authorizer.group('infra.opr8r').resource('terraformworkspaces').namespace(request.namespace).name(object.metadata.name).check('approve')"
  - name: approves
    expression: "object.metadata.?annotations[?'infra.opr8r/approve'].orValue('')"
  - name: approved
    expression: "oldObject == null ? '' : oldObject.metadata.?annotations[?'infra.opr8r/approve'].orValue('')"
  # A higher level means less approval.
  - name: levels
    expression: "{'Manual': 0, 'AutoUnlessDestroy': 1, 'Auto': 2}"
  - name: level
    expression: "variables.levels[?object.spec.?approval.orValue('Auto')].orValue(2)"
  - name: before
    expression: "oldObject == null ? 2 : variables.levels[?oldObject.spec.?approval.orValue('Auto')].orValue(2)"
validations:
  - expression: "variables.approves == '' || variables.approves == variables.approved || variables.right.allowed()"
    messageExpression: "request.userInfo.username + ' is not allowed to approve plans of TerraformWorkspace ' + object.metadata.name + '; this requires the verb approve on terraformworkspaces.infra.opr8r in namespace ' + request.namespace"
    reason: Forbidden
  - expression: "variables.level <= variables.before || variables.right.allowed()"
    messageExpression: "'spec.approval: ' + request.userInfo.username + ' is not allowed to reduce the approval of TerraformWorkspace ' + object.metadata.name + '; this requires the verb approve on terraformworkspaces.infra.opr8r in namespace ' + request.namespace"
    reason: Forbidden
{{- end }}
