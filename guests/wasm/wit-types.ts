/**
 * The types of component functions (WIT) and their text: `record { value: f64, unit: string }`. The text is shown and stored, and
 * parsed again to check and convert values.
 */
import { ModuleRefusal } from './module-refusal.ts'

export const WIT_PRIMITIVES = [
  'bool',
  's8',
  'u8',
  's16',
  'u16',
  's32',
  'u32',
  's64',
  'u64',
  'f32',
  'f64',
  'char',
  'string',
] as const
export type WitPrimitive = (typeof WIT_PRIMITIVES)[number]

export type WitType =
  | { kind: WitPrimitive }
  | { kind: 'list' | 'option'; item: WitType }
  | { kind: 'result'; ok: WitType | undefined; err: WitType | undefined }
  | { kind: 'tuple'; items: WitType[] }
  | { kind: 'record'; fields: [name: string, type: WitType][] }
  | { kind: 'variant'; cases: [name: string, type: WitType | undefined][] }
  | { kind: 'enum' | 'flags'; names: string[] }
  /** Exists only inside the component and has no JSON. */
  | { kind: 'resource' }

/** The limit of a type's text: shared parts of a type can make it exponentially long. */
const MAX_TEXT_CHARACTERS = 20_000
const MAX_DEPTH = 100

/** Throws ModuleRefusal when the text would be too long. */
export function formatWitType(type: WitType): string {
  let left = MAX_TEXT_CHARACTERS
  const spend = (text: string): string => {
    left -= text.length
    if (left < 0) throw new ModuleRefusal(`a type of the component takes more than ${MAX_TEXT_CHARACTERS} characters`)
    return text
  }
  const list = (items: readonly string[]) => items.join(', ')
  const format = (shown: WitType): string => {
    switch (shown.kind) {
      case 'list':
      case 'option':
        return `${spend(shown.kind)}<${format(shown.item)}>`
      case 'tuple':
        return `${spend('tuple')}<${list(shown.items.map(format))}>`
      case 'result':
        return spend('result') + formatResult(shown.ok && format(shown.ok), shown.err && format(shown.err))
      case 'record':
        return `${spend('record')} { ${list(shown.fields.map(([name, field]) => `${spend(name)}: ${format(field)}`))} }`
      case 'variant':
        return `${spend('variant')} { ${list(shown.cases.map(([name, payload]) => spend(name) + (payload === undefined ? '' : `(${format(payload)})`)))} }`
      case 'enum':
      case 'flags':
        return `${spend(shown.kind)} { ${list(shown.names.map(spend))} }`
      default:
        return spend(shown.kind)
    }
  }
  return format(type)
}

function formatResult(ok: string | undefined, err: string | undefined): string {
  if (err === undefined) return ok === undefined ? '' : `<${ok}>`
  return `<${ok ?? '_'}, ${err}>`
}

/** Parses the text of `formatWitType`. Throws ModuleRefusal for any other text. */
export function parseWitType(text: string): WitType {
  const parser = new TypeParser(text)
  const type = parser.type(0)
  parser.end()
  return type
}

const TOKEN = /\s*([a-zA-Z_][a-zA-Z0-9-]*|[<>{}(),:])/y

class TypeParser {
  readonly #text: string
  #at = 0

  constructor(text: string) {
    this.#text = text
  }

  type(depth: number): WitType {
    if (depth > MAX_DEPTH) throw this.#refusal()
    const kind = this.#next()
    const inner = () => this.type(depth + 1)
    switch (kind) {
      case 'list':
      case 'option': {
        const [item] = this.#list('<', '>', inner)
        if (item === undefined) throw this.#refusal()
        return { kind, item }
      }
      case 'tuple':
        return { kind, items: this.#list('<', '>', inner) }
      case 'result': {
        const orNothing = () => (this.#take('_') ? undefined : inner())
        const [ok, err] = this.#peek() === '<' ? this.#list('<', '>', orNothing) : []
        return { kind, ok, err }
      }
      case 'record': {
        const field = (): [string, WitType] => {
          const name = this.#next()
          this.#expect(':')
          return [name, inner()]
        }
        return { kind, fields: this.#list('{', '}', field) }
      }
      case 'variant': {
        const one = (): [string, WitType | undefined] => [this.#next(), this.#list('(', ')', inner, true)[0]]
        return { kind, cases: this.#list('{', '}', one) }
      }
      case 'enum':
      case 'flags':
        return { kind, names: this.#list('{', '}', () => this.#next()) }
      case 'resource':
        return { kind }
      default:
        if ((WIT_PRIMITIVES as readonly string[]).includes(kind)) return { kind: kind as WitPrimitive }
        throw this.#refusal()
    }
  }

  end(): void {
    if (this.#text.slice(this.#at).trim() !== '') throw this.#refusal()
  }

  #list<T>(open: string, close: string, item: () => T, isOptional = false): T[] {
    if (isOptional && this.#peek() !== open) return []
    this.#expect(open)
    const items: T[] = []
    while (!this.#take(close)) {
      items.push(item())
      if (this.#peek() !== close) this.#expect(',')
    }
    return items
  }

  #peek(): string {
    TOKEN.lastIndex = this.#at
    return TOKEN.exec(this.#text)?.[1] ?? ''
  }

  #next(): string {
    const token = this.#peek()
    if (token === '') throw this.#refusal()
    this.#at = TOKEN.lastIndex
    return token
  }

  #take(token: string): boolean {
    if (this.#peek() !== token) return false
    this.#next()
    return true
  }

  #expect(token: string): void {
    if (!this.#take(token)) throw this.#refusal()
  }

  #refusal(): ModuleRefusal {
    return new ModuleRefusal(`${JSON.stringify(this.#text.slice(0, 100))} is not a component type`)
  }
}
