/** Fields of the documents of a device: both sides in one list, and the values of a form with their types. Pure. */
import { formatJson, parseJson } from '../../../api/json.ts'

export type Path = readonly string[]
export type Document = Readonly<Record<string, unknown>>

const isObject = (value: unknown): value is Document =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** The values that are no objects, and objects without fields. */
function leavesOf(value: unknown, path: Path = []): (readonly [Path, unknown])[] {
  if (!isObject(value)) return [[path, value]]
  const fields = Object.entries(value)
  if (fields.length === 0) return path.length === 0 ? [] : [[path, value]]
  return fields.flatMap(([name, inner]) => leavesOf(inner, [...path, name]))
}

/** `led.on`; a name that contains a dot is quoted. */
export const formatPath = (path: Path) =>
  path.map((name) => (/^[^.[\]"\s]+$/.test(name) ? name : formatJson(name))).join('.')

export type Line = {
  /** Unique among the lines. */
  readonly key: string
  readonly name: string
  /** As JSON; undefined: this side does not have the field. */
  readonly desired: string | undefined
  readonly reported: string | undefined
  /** `differs`: the device is to change it. `only reported`: nobody desires anything of it. */
  readonly mark: 'same' | 'differs' | 'only reported'
}

/** Lines with a difference first; each part by name, because the server keeps no order. The server said in `delta` what differs. */
export function linesOf({
  desired,
  reported,
  delta,
}: {
  desired: Document
  reported: Document
  delta: Document
}): Line[] {
  const keyOf = (path: Path) => formatJson(path)
  const sides = (document: Document) =>
    new Map(leavesOf(document).map(([path, value]) => [keyOf(path), { path, value }]))
  const [wanted, given, different] = [sides(desired), sides(reported), sides(delta)]
  const lines = [...new Set([...wanted.keys(), ...given.keys()])].map((key): Line => {
    const [one, other] = [wanted.get(key), given.get(key)]
    return {
      key,
      name: formatPath(one?.path ?? other?.path ?? []),
      desired: one === undefined ? undefined : formatJson(one.value),
      reported: other === undefined ? undefined : formatJson(other.value),
      mark: one === undefined ? 'only reported' : different.has(key) ? 'differs' : 'same',
    }
  })
  const rank = { differs: 0, same: 1, 'only reported': 2 }
  return lines.toSorted((a, b) => rank[a.mark] - rank[b.mark] || a.name.localeCompare(b.name))
}

/** The types of a value in a form. Lists, and everything else that has no field of its own, are JSON. */
export const TYPES = [
  ['text', 'Text'],
  ['number', 'Number'],
  ['truth', 'True or false'],
  ['json', 'JSON'],
] as const
export type Type = (typeof TYPES)[number][0]

export type FormField = { readonly id: number; readonly name: string; readonly type: Type; readonly text: string }

function typeOf(value: unknown): Type {
  if (typeof value === 'string') return 'text'
  if (typeof value === 'number' || typeof value === 'bigint') return 'number'
  return typeof value === 'boolean' ? 'truth' : 'json'
}

export const formFieldsOf = (document: Document): FormField[] =>
  leavesOf(document).map(([path, value], id) => ({
    id,
    name: formatPath(path),
    type: typeOf(value),
    text: typeof value === 'string' ? value : formatJson(value),
  }))

/** The part between dots, or a quoted one. */
const PART = /^(?:"(?:[^"\\]|\\.)*"|[^.[\]"\s]+)/

/** Reads what `formatPath` writes. Undefined: it is no path. */
export function parsePath(text: string): Path | undefined {
  const path: string[] = []
  let rest = text.trim()
  for (;;) {
    const [part] = PART.exec(rest) ?? []
    if (part === undefined) return undefined
    try {
      path.push(part.startsWith('"') ? (parseJson(part) as string) : part)
    } catch {
      return undefined
    }
    rest = rest.slice(part.length)
    if (rest === '') return path
    if (!rest.startsWith('.')) return undefined
    rest = rest.slice(1)
  }
}

export class FieldFault extends Error {
  readonly id: number

  constructor(id: number, message: string) {
    super(message)
    this.id = id
  }
}

function valueOf({ id, type, text }: FormField): unknown {
  if (type === 'text') return text
  if (type === 'truth') return text === 'true'
  let value: unknown
  try {
    value = parseJson(text)
  } catch {
    throw new FieldFault(id, type === 'number' ? 'Enter a number' : 'Enter JSON')
  }
  if (type === 'number' && typeof value !== 'number' && typeof value !== 'bigint')
    throw new FieldFault(id, 'Enter a number')
  if (value === null) throw new FieldFault(id, 'null is no value here: remove the field')
  return value
}

/** The document of these fields. Throws `FieldFault` with the first field that is wrong. */
export function documentOf(fields: readonly FormField[]): Document {
  const root = new Map<string, unknown>()
  for (const field of fields) {
    const path = parsePath(field.name)
    if (path === undefined) throw new FieldFault(field.id, 'Enter a name, such as led.on')
    let at = root
    for (const name of path.slice(0, -1)) {
      const inner = at.get(name) ?? new Map<string, unknown>()
      if (!(inner instanceof Map)) throw new FieldFault(field.id, 'A field above it has a value')
      at.set(name, inner)
      at = inner as Map<string, unknown>
    }
    const last = path.at(-1) ?? ''
    if (at.has(last)) throw new FieldFault(field.id, 'This field is there twice')
    at.set(last, valueOf(field))
  }
  return plain(root) as Document
}

const plain = (value: unknown): unknown =>
  value instanceof Map ? Object.fromEntries([...value].map(([name, inner]) => [name, plain(inner)])) : value

/** A text as a document. Throws an error with a sentence. */
export function parseDocument(text: string): Document {
  let value: unknown
  try {
    value = parseJson(text)
  } catch (error) {
    throw new Error(`This is not JSON: ${(error as Error).message}`, { cause: error })
  }
  if (!isObject(value)) throw new Error('Enter a JSON object')
  return value
}
