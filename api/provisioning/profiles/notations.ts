/**
 * Parses and serializes texts in the three notations of profiles. Crafted texts can take long; `documents.ts` chooses
 * the thread.
 */
import { bigIntegersOf, exactIntegersOf, parseWithExactIntegers } from '#core/exact-integers.ts'
import { parse as parseToml, stringify as writeToml } from 'smol-toml'

export type Notation = 'json' | 'yaml' | 'toml'

/** The requested operation: check the text, convert it to JSON, or serialize it again. */
export type Conversion = 'check' | 'json' | 'rewrite'

/** Maximum number of YAML aliases: a few lines could expand to millions. */
const MAX_ALIASES = 100
/** Maximum length of a serialized document. */
export const MAX_CONVERTED_CHARS = 1024 * 1024

/**
 * `fault` does not contain the message of the parser, which quotes the text. TOML cannot represent null, or a list as
 * the whole document.
 */
export type Converted = { text: string } | { fault: 'unreadable' | 'unwritable' | 'too_long' }

/** Returns the requested text, empty for a check. */
export async function convertDocument(wanted: Conversion, notation: Notation, text: string): Promise<Converted> {
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

async function read(notation: Notation, text: string, wanted: Conversion): Promise<unknown> {
  if (notation === 'json') return parseWithExactIntegers(text)
  if (notation === 'toml')
    return wanted === 'rewrite'
      ? readTomlOrJson(text)
      : exactIntegersOf(parseToml(text, { integersAsBigInt: 'asNeeded' }))
  const { parse } = await import('yaml')
  return exactIntegersOf(parse(text, { maxAliasCount: MAX_ALIASES, logLevel: 'error', intAsBigInt: true }))
}

/** A TOML template can be written in JSON. */
function readTomlOrJson(text: string): unknown {
  try {
    return parseWithExactIntegers(text)
  } catch {
    return parseToml(text, { integersAsBigInt: 'asNeeded' })
  }
}

async function write(notation: Notation, value: unknown): Promise<string> {
  if (notation === 'json') return JSON.stringify(value, undefined, 2) ?? 'null'
  if (notation === 'toml') return writeToml(bigIntegersOf(value) as Record<string, unknown>)
  const { stringify } = await import('yaml')
  return stringify(bigIntegersOf(value))
}
