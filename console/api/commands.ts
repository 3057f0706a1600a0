/** Requests as commands for a shell. Tokens and secrets are variables there. */
import { shownBase } from './base.ts'
import { formatJson } from './json.ts'
import type { SentRequest } from './requests.ts'

const SECRET_FIELD = /secret|password|token|(?:^|_)key$/i

function withoutSecrets(value: unknown, name = ''): unknown {
  if (typeof value === 'string' && SECRET_FIELD.test(name)) return `$${name.toUpperCase()}`
  if (Array.isArray(value)) return value.map((one) => withoutSecrets(one, name))
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, withoutSecrets(one, key)]))
}

const quoted = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`

/** A file of an import: the cells of its columns with secrets. Cells with quotes in other columns stay as they are. */
function csvWithoutSecrets(text: string): string {
  const [header = '', ...rows] = text.split('\n')
  const names = header.trim().split(',')
  const isSecret = names.map((name) => SECRET_FIELD.test(name))
  if (!isSecret.includes(true)) return text
  // With quotes, a cell may contain a comma: then no cell of the row is shown.
  const shown = rows.map((row) =>
    row.trim() === ''
      ? row
      : row.includes('"')
        ? '…'
        : row
            .split(',')
            .map((cell, at) =>
              isSecret[at] === true && cell.trim() !== '' ? `$${(names[at] ?? '').toUpperCase()}` : cell,
            )
            .join(','),
  )
  return [header, ...shown].join('\n')
}

const isCsv = (type: string | undefined) => type?.startsWith('text/csv') === true

function bodyText(body: unknown, type?: string): string | undefined {
  if (body === undefined) return undefined
  if (typeof body === 'string') return isCsv(type) ? csvWithoutSecrets(body) : body
  if (body instanceof Blob || body instanceof FormData) return undefined
  return formatJson(withoutSecrets(body))
}

export function asCurl({ method, path, body, type }: Omit<SentRequest, 'id'>): string {
  const text = bodyText(body, type)
  const isFile = body instanceof Blob || body instanceof FormData
  const isJson = typeof body === 'object' && !isFile
  return [
    `curl -s${method === 'GET' ? '' : ` -X ${method}`} "${shownBase}/${path}" -H "Authorization: Bearer $TOKEN"`,
    ...(isJson
      ? [`-H 'Content-Type: application/json'`]
      : type === undefined
        ? []
        : [`-H ${quoted(`Content-Type: ${type}`)}`]),
    // A text that begins with @ is no file.
    ...(text === undefined ? [] : [`--data-raw ${quoted(text)}`]),
    ...(isFile ? [body instanceof FormData ? '-F file=@module.wasm' : '--data-binary @module.wasm'] : []),
  ].join(' \\\n  ')
}

export function asCli({ method, path, body, type }: Omit<SentRequest, 'id'>): string | undefined {
  // The command sends JSON.
  if (body instanceof Blob || body instanceof FormData || (type !== undefined && !type.includes('json')))
    return undefined
  const text = bodyText(body, type)
  return [`skein api ${method} ${quoted(`/${path}`)}`, ...(text === undefined ? [] : [`--body ${quoted(text)}`])].join(
    ' ',
  )
}
