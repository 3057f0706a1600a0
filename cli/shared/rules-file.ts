/** Rules as YAML: a list of records with the fields of the API that users give. JSON is YAML too. */
import { parse, stringify } from 'yaml'
import { CommandError } from './failures.ts'
import { contentOf, isRecord } from './values.ts'

/** What users give. The others say what the rule has done. */
const FIELDS = [
  'name',
  'description',
  'status',
  'source',
  'condition',
  'condition_task',
  'for',
  'clear_when',
  'clear_for',
  'cooldown',
  'severity',
  'window_time',
  'actions',
] as const

const MAX_ALIASES = 0

export function formatRules(rules: readonly Record<string, unknown>[]): string {
  const records = rules.map((rule) =>
    Object.fromEntries(FIELDS.flatMap((field) => (rule[field] === undefined ? [] : [[field, rule[field]]]))),
  )
  return stringify({ rules: records }, { lineWidth: 0 })
}

/** Throws CommandError, which names the record. */
export function readRules(file: string): Record<string, unknown>[] {
  const text = String(contentOf(file === '-' ? file : `@${file}`))
  let document: unknown
  try {
    document = parse(text, { maxAliasCount: MAX_ALIASES })
  } catch (error) {
    throw new CommandError(`${file} is not YAML: ${(error as Error).message}`)
  }
  const records: unknown = isRecord(document) ? document['rules'] : document
  if (!Array.isArray(records)) throw new CommandError(`${file} must have a list of rules: rules: [{name: …}]`)
  const known: ReadonlySet<string> = new Set(FIELDS)
  return records.map((record: unknown, index) => {
    if (!isRecord(record) || typeof record['name'] !== 'string')
      throw new CommandError(`rule ${index + 1} of ${file} needs a name`)
    const unknown = Object.keys(record).find((field) => !known.has(field))
    if (unknown !== undefined) throw new CommandError(`the rule ${record['name']} of ${file} has no field ${unknown}`)
    return record
  })
}
