{{/* Settings of the pods of runs, in addition to the settings of all operators. */}}
{{- define "terraform-runner-operator.own" -}}
{{- $image := .Values.runner.image }}
env:
  - name: OPCORE_RUNNER_IMAGE
    {{- if $image.digest }}
    value: {{ printf "%s@%s" $image.repository $image.digest | quote }}
    {{- else }}
    value: {{ printf "%s:%s" $image.repository ($image.tag | default .Chart.AppVersion) | quote }}
    {{- end }}
  - name: OPCORE_RUNNER_PULL_POLICY
    value: {{ $image.pullPolicy | quote }}
  - name: OPCORE_MAX_RUNS
    value: {{ int .Values.runs.max | quote }}
  - name: OPCORE_MAX_RUNS_PER_NAMESPACE
    value: {{ int .Values.runs.maxPerNamespace | quote }}
  - name: OPCORE_MAX_CHECKS
    value: {{ int .Values.runs.maxChecks | quote }}
  - name: OPCORE_START_WITHIN
    value: {{ .Values.runs.startWithin | quote }}
  {{- range $part, $most := .Values.runs.maxTimeouts }}
  - name: {{ printf "OPCORE_MAX_%s_TIMEOUT" (upper $part) }}
    value: {{ $most | quote }}
  {{- end }}
  - name: OPCORE_AUTHORS_TRUSTED
    value: {{ .Values.authors.trusted | quote }}
  {{- range $name, $allowed := dict "IMAGES" .Values.authors.images "SERVICE_ACCOUNTS" .Values.authors.serviceAccounts "VOLUME_TYPES" .Values.authors.volumeTypes "PRIORITY_CLASSES" .Values.authors.priorityClasses "RUNTIME_CLASSES" .Values.authors.runtimeClasses }}
  - name: OPCORE_AUTHORS_{{ $name }}
    value: {{ join "," $allowed | quote }}
  {{- end }}
  - name: OPCORE_AUTHORS_MODULES
    value: {{ .Values.authors.modules | quote }}
  - name: OPCORE_APPROVALS_GUARDED
    value: {{ .Values.admissionPolicies.enabled | quote }}
{{- end }}
