/** Texts in the three notations of profiles. All of it may take long for what was made to; `documents.ts` says where that is done. */
import { parse as parseToml, stringify as writeToml } from 'smol-toml'

export type Notation = 'json' | 'yaml' | 'toml'

/** What is wanted of a text: whether it can be read, what it holds as JSON, or the same written anew. */
export type Wanted = 'check' | 'json' | 'rewrite'

/** Repetitions by alias: a few lines of YAML could stand for millions. */
const MAX_ALIASES = 100
/** Of a document written anew. */
export const MAX_CONVERTED_CHARS = 1024 * 1024

/** `fault` without a word of the reader's, which quotes what it read: TOML knows no null, and no list as a whole document. */
export type Converted = { text: string } | { fault: 'unreadable' | 'unwritable' | 'too_long' }

/** The text that is wanted, empty for a check. */
export async function convertDocument(wanted: Wanted, notation: Notation, text: string): Promise<Converted> {
  let value: unknown
  try {
    value = await read(notation, text, wanted)
  } catch {
    return { fault: 'unreadable' }
  }
  try {
    const text = wanted === 'check' ? '' : await write(wanted === 'json' ? 'json' : notation, value)
    return text.length > MAX_CONVERTED_CHARS ? { fault: 'too_long' } : { text }
  } catch {
    return { fault: 'unwritable' }
  }
}

async function read(notation: Notation, text: string, wanted: Wanted): Promise<unknown> {
  if (notation === 'json') return JSON.parse(text)
  if (notation === 'toml') return wanted === 'rewrite' ? readTomlOrJson(text) : parseToml(text)
  const { parse } = await import('yaml')
  return parse(text, { maxAliasCount: MAX_ALIASES, logLevel: 'error' })
}

/** A template of TOML may be written as JSON. */
function readTomlOrJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return parseToml(text)
  }
}

async function write(notation: Notation, value: unknown): Promise<string> {
  if (notation === 'json') return JSON.stringify(value, undefined, 2) ?? 'null'
  if (notation === 'toml') return writeToml(value as Record<string, unknown>)
  const { stringify } = await import('yaml')
  return stringify(value)
}
