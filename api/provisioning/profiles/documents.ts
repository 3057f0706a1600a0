/** Text in the three notations of profiles, read and written. What reads YAML is loaded when it is asked for. */
import { parse as parseToml, stringify as writeToml } from 'smol-toml'

export type Notation = 'json' | 'yaml' | 'toml'

/** Repetitions by alias: a few lines of YAML could stand for millions. */
const MAX_ALIASES = 100

/** Throws what the reader of the notation throws. */
export async function readDocument(notation: Notation, text: string): Promise<unknown> {
  if (notation === 'json') return JSON.parse(text)
  if (notation === 'toml') return parseToml(text)
  const { parse } = await import('yaml')
  return parse(text, { maxAliasCount: MAX_ALIASES, logLevel: 'error' })
}

/** Throws for what the notation cannot say: TOML knows no null, and no list as a whole document. */
export async function writeDocument(notation: Notation, value: unknown): Promise<string> {
  if (notation === 'json') return JSON.stringify(value, undefined, 2)
  if (notation === 'toml') return writeToml(value as Record<string, unknown>)
  const { stringify } = await import('yaml')
  return stringify(value)
}
