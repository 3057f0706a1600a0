/** Durations in Go's notation: `90s`, `1h30m`, `500ms`, or bare seconds. */
import { CommandError } from './failures.ts'

const UNIT_SECONDS: Readonly<Record<string, number>> = { ms: 0.001, s: 1, m: 60, h: 3600, d: 86_400 }

/** Throws CommandError with the name `shown` for any other text. */
export function secondsOf(text: string, shown: string): number {
  if (/^\d+(\.\d+)?$/.test(text)) return Number(text)
  if (!/^(\d+(\.\d+)?(ms|s|m|h|d))+$/.test(text))
    throw new CommandError(`${shown} must be a duration such as 90s or 1h30m`)
  let seconds = 0
  for (const [, amount = '0', unit = 's'] of text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/gy))
    seconds += Number(amount) * (UNIT_SECONDS[unit] ?? 1)
  return seconds
}
