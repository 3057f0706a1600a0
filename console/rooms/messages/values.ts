/** The value of a stored message in one line. */
import { formatJson } from '../../api/json.ts'
import { formatValue } from '../../design/display.tsx'

type Value = {
  value?: number
  string_value?: string
  bool_value?: boolean
  data_value?: string
  sum?: number
  payload?: unknown
}

export function valueText({
  value,
  string_value: word,
  bool_value: flag,
  data_value: bytes,
  sum,
  payload,
}: Value): string {
  if (value !== undefined) return formatValue(value)
  if (payload !== undefined) return typeof payload === 'string' ? payload : formatJson(payload)
  if (sum !== undefined) return `sum ${formatValue(sum)}`
  return word ?? (flag === undefined ? undefined : String(flag)) ?? bytes ?? ''
}
