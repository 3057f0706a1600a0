/** Inputs of a function as the user types them, and as the API takes them. */
import { formatJson, parseJson } from '../../api/json.ts'

export type Parameter = { readonly name: string; readonly type: string }
export type ModuleExport = { name: string; kind: string; params: string[]; results: string[] }

/** `i32`, or `name: type` in a component. */
export function parametersOf(params: readonly string[]): Parameter[] {
  return params.map((param, index) => {
    const colon = param.indexOf(':')
    return colon === -1
      ? { name: `Parameter ${index + 1}`, type: param.trim() }
      : { name: param.slice(0, colon).trim(), type: param.slice(colon + 1).trim() }
  })
}

const INTEGER = /^(?:[isu](?:8|16|32|64))$/
const FLOAT = /^(?:f32|f64|float32|float64)$/
const WIDE = /^(?:[isu]64)$/

/** A wide integer inside of a list or record is sent as a text too: the API refuses it as a number. */
function asInput(value: unknown): unknown {
  if (typeof value === 'bigint') return String(value)
  if (Array.isArray(value)) return value.map(asInput)
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([key, field]) => [key, asInput(field)]))
}

/** Throws an error with a sentence. Numbers of 64 bits stay exact, as texts. */
export function parseInput({ name, type }: Parameter, text: string): unknown {
  const given = text.trim()
  if (INTEGER.test(type)) {
    if (!/^-?\d+$/.test(given)) throw new Error(`${name} must be a whole number`)
    return WIDE.test(type) && !Number.isSafeInteger(Number(given)) ? given : Number(given)
  }
  if (FLOAT.test(type)) {
    if (given === '' || !Number.isFinite(Number(given))) throw new Error(`${name} must be a number`)
    return Number(given)
  }
  if (type === 'string' || type === 'char') return text
  if (type === 'bool') return given === 'true'
  try {
    return asInput(parseJson(given))
  } catch {
    throw new Error(`${name} must be JSON of the type ${type}`)
  }
}

/** The text that `parseInput` reads as this value; empty for a value that is absent. */
export function inputText({ type }: Parameter, value: unknown): string {
  if (value === undefined) return ''
  if (typeof value === 'string' && (type === 'string' || type === 'char' || INTEGER.test(type) || FLOAT.test(type)))
    return value
  return formatJson(value)
}
