{{/* Names and labels that several templates share. */}}

{{- define "vto.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "vto.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 53 | trimSuffix "-" }}
{{- else if contains (include "vto.name" .) .Release.Name }}
{{- .Release.Name | trunc 53 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "vto.name" .) | trunc 53 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* Cluster-scoped objects carry the namespace too: two releases of one name may stand side by side. */}}
{{- define "vto.clustername" -}}
{{- printf "%s-%s" .Release.Namespace (include "vto.fullname" .) | trunc 53 | trimSuffix "-" }}
{{- end }}

{{- define "vto.selector" -}}
app.kubernetes.io/name: {{ include "vto.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "vto.labels" -}}
{{ include "vto.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: vllm-tuning-operator
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "vto.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "vto.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "vto.priorityClass" -}}
{{- default (printf "%s-benchmark" (include "vto.clustername" .)) .Values.priorityClass.name }}
{{- end }}

{{/* Usage: include "vto.image" (dict "root" $ "image" .Values.images.bench) */}}
{{- define "vto.image" -}}
{{- $images := .root.Values.images }}
{{- $tag := default .root.Chart.AppVersion $images.tag }}
{{- with $images.registry }}{{ trimSuffix "/" . }}/{{ end }}{{ .image.repository }}:{{ $tag }}
{{- end }}

{{/* The namespaces served under scope.type Namespaced, as a JSON list. */}}
{{- define "vto.namespaces" -}}
{{- default (list .Release.Namespace) .Values.scope.namespaces | uniq | toJson }}
{{- end }}

{{- define "vto.subject" -}}
- kind: ServiceAccount
  name: {{ include "vto.serviceAccount" . }}
  namespace: {{ .Release.Namespace }}
{{- end }}
