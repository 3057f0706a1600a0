/** The input of one invocation, and the conversion of its texts to values. */
import { parseWithExactIntegers } from '#core/exact-integers.ts'
import { readFileSync } from 'node:fs'
import { CommandError } from './failures.ts'
import type { GivenFlags } from './flags.ts'

export type Given = {
  args: Readonly<Record<string, string>>
  flags: GivenFlags
  /** The domain from the command line, a flag, the environment, the token or the context. */
  domain: string | undefined
  /** The token or secret at the end of the command line. */
  credential: string | undefined
}

/** An argument that the row requires. */
export function arg(given: Given, name: string): string {
  const value = given.args[name]
  if (value === undefined) throw new Error(`no argument ${name}`)
  return value
}

/** Standard input can be read once, but an argument can be read twice. */
let standardInput: Buffer | undefined

/** The content of an argument: itself, `@file`, or `-` for standard input. */
export function contentOf(value: string): string | Buffer {
  try {
    if (value === '-') return (standardInput ??= readFileSync(0))
    if (value.startsWith('@')) return readFileSync(value.slice(1))
  } catch (error) {
    throw new CommandError(
      `cannot read ${value === '-' ? 'standard input' : value.slice(1)}: ${(error as Error).message}`,
    )
  }
  return value
}

/** A JSON argument. */
export function parseJson(value: string, name: string): unknown {
  try {
    return parseWithExactIntegers(String(contentOf(value))) as unknown
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error
    throw new CommandError(`<${name}> is not JSON: ${error.message}`, `quote it for the shell: '{"name": "pump"}'`)
  }
}

export const json = (given: Given, name: string): unknown => parseJson(arg(given, name), name)

export function jsonObject(given: Given, name: string): Record<string, unknown> {
  const value = json(given, name)
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new CommandError(`<${name}> must be a JSON object`)
  return value as Record<string, unknown>
}

/** A list of strings: a JSON array, `{"<key>": [...]}`, or comma-separated words. */
export function list(given: Given, name: string, key?: string): string[] {
  const value = arg(given, name)
  if (!/^\s*[[{"]|^@|^-$/.test(value)) return value.split(',').map((one) => one.trim())
  const parsed = parseJson(value, name)
  const items = key !== undefined && isRecord(parsed) ? parsed[key] : parsed
  if (typeof items === 'string') return [items]
  if (!Array.isArray(items)) throw new CommandError(`<${name}> must be a JSON array of strings, such as '["a", "b"]'`)
  return items.map((item) => plainText(item))
}

/** A value of an answer as text; `otherwise` is the default. */
export function plainText(value: unknown, otherwise = ''): string {
  if (value === undefined || value === null) return otherwise
  return typeof value === 'object' ? JSON.stringify(value) : String(value as string | number | boolean)
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Numbers of a `--inputs` flag; those beyond 2^53 stay strings, which the API accepts as 64-bit integers. */
export function numbers(text: string, shown: string): (number | string)[] {
  return text.split(',').map((one) => {
    const trimmed = one.trim()
    const value = Number(trimmed)
    if (trimmed === '' || Number.isNaN(value))
      throw new CommandError(`${shown} must be comma-separated numbers, such as 1,2.5,-3`)
    return Number.isInteger(value) && !Number.isSafeInteger(value) ? trimmed : value
  })
}

/** Comma-separated numbers, or a JSON array of any values. */
export function inputsOf(text: string, shown: string): unknown[] {
  if (!text.trimStart().startsWith('[')) return numbers(text, shown)
  try {
    return parseWithExactIntegers(text) as unknown[]
  } catch (error) {
    throw new CommandError(`${shown} must be comma-separated numbers or a JSON array: ${(error as Error).message}`)
  }
}

/** Converts `KEY=VALUE` flags to an object. */
export function pairs(values: readonly string[], shown: string): Record<string, string> {
  return Object.fromEntries(
    values.map((pair) => {
      const split = pair.indexOf('=')
      if (split < 1) throw new CommandError(`${shown} must be KEY=VALUE`)
      return [pair.slice(0, split), pair.slice(split + 1)]
    }),
  )
}

/** Splits `channel.sub.topic` into the two parts of a message path. */
export function splitTopic(topic: string): { channel: string; subtopic: string } {
  const [channel = '', ...rest] = topic.split(/[./]/)
  return { channel, subtopic: rest.filter((part) => part !== '').join('.') }
}
