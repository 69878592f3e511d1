{{- define "ullage.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "ullage.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "ullage.name" .) .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "ullage.name" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "ullage.selector" -}}
app.kubernetes.io/name: {{ include "ullage.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "ullage.labels" -}}
{{ include "ullage.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "ullage.secret" -}}
{{- default (printf "%s-token" (include "ullage.fullname" .)) .Values.token.existingSecret -}}
{{- end -}}

{{- /* A TOML table of plain values and lists: JSON writes both as TOML does. */ -}}
{{- define "ullage.toml" -}}
{{- range $name, $value := . }}
{{ $name }} = {{ mustToRawJson $value }}
{{- end }}
{{- end -}}
