/**
 * Resolves words to a command and its arguments. Both orders are accepted: verb first (`clients get <id>`) and entity
 * first (`clients <id> get`), with or without domain and token at the end.
 */
import type { Command, Group } from './command.ts'
import { UsageError } from './failures.ts'

/** A JSON array or object, `@file`, or `-` for standard input. */
const JSON_WORD = /^\s*[[{@]|^-$/

/** Whether a word of a command line is a JSON argument. */
export const isJsonWord = (word: string | undefined): boolean => word !== undefined && JSON_WORD.test(word)

export type Resolved = {
  command: Command
  args: Record<string, string>
  /** The words after the arguments: domain, token, secret. */
  rest: readonly string[]
}

type Slot = { name: string; isOptional: boolean }

const TAIL_LENGTH = { domain: 2, user: 1, device: 2, none: 0 } as const
const TAIL_TEXT = {
  domain: ['[<domain_id>]', '[<user_token>]'],
  user: ['[<user_token>]'],
  device: ['[<domain_id>]', '[<client_secret>]'],
  none: [],
} as const

export function slotsOf(args: string): Slot[] {
  return [...args.matchAll(/(\[)?<([^<>]+)>/g)].map(([, bracket, name = '']) => ({
    name,
    isOptional: bracket !== undefined,
  }))
}

/** The usage line that help and a wrong call show. */
export function usageOf(groupName: string, command: Command): string {
  return ['skein', groupName, command.words, command.args, ...TAIL_TEXT[command.tail]]
    .filter((part) => part !== '')
    .join(' ')
}

/** Throws UsageError with the nearest usage lines. */
export function resolveCommand(group: Group, groupName: string, positionals: readonly string[]): Resolved {
  const direct = longestMatch(group, positionals)
  if (direct !== undefined)
    return fit(groupName, direct.commands, positionals.slice(direct.length), (command) => command.args)

  const [subject = '', ...after] = positionals
  // `clients all get` means `clients get all`.
  const words = subject === 'all' ? [...after.slice(0, 1), 'all', ...after.slice(1)] : after
  const behind = longestMatch(group, words)
  if (behind !== undefined) {
    const rest = words.slice(behind.length)
    return fit(
      groupName,
      behind.commands,
      subject === 'all' ? rest : [subject, ...rest],
      (command) => command.subjectArgs ?? command.args,
    )
  }
  const known = [...new Set(group.commands.map((command) => command.words.split(' ')[0] ?? ''))].join(', ')
  throw new UsageError(
    positionals.length === 0
      ? `skein ${groupName} requires a command: ${known}`
      : `skein ${groupName} has no command ${positionals[0]}; commands: ${known}`,
    `skein ${groupName} <command> [<arguments>]`,
  )
}

function longestMatch(
  group: Group,
  positionals: readonly string[],
): { commands: Command[]; length: number } | undefined {
  let best: Command[] = []
  let bestLength = -1
  for (const command of group.commands) {
    const words = command.words === '' ? [] : command.words.split(' ')
    if (!words.every((word, index) => positionals[index] === word)) continue
    if (words.length > bestLength) {
      best = [command]
      bestLength = words.length
    } else if (words.length === bestLength) best.push(command)
  }
  return bestLength < 0 ? undefined : { commands: best, length: bestLength }
}

function fit(
  groupName: string,
  commands: readonly Command[],
  values: readonly string[],
  argsOf: (command: Command) => string,
): Resolved {
  for (const command of commands) {
    // Rows with the same words differ in where their JSON stands.
    if (commands.length > 1 && !hasJsonInPlace(slotsOf(argsOf(command)), values)) continue
    const args: Record<string, string> = {}
    const left = [...values]
    let isWhole = true
    for (const slot of slotsOf(argsOf(command))) {
      const value = left[0]
      const isMeant = !slot.isOptional || command.tail === 'none' || /^\s*[[{]/.test(value ?? '')
      if (value === undefined) isWhole &&= slot.isOptional
      else if (isMeant) args[slot.name] = left.shift() ?? ''
    }
    if (isWhole && left.length <= TAIL_LENGTH[command.tail]) {
      refuseEmpty(command, args, left)
      return { command, args, rest: left }
    }
  }
  const usages = commands.map((command) => usageOf(groupName, command))
  throw new UsageError(
    values.length === 0
      ? 'arguments are missing'
      : `${values.length} argument${values.length === 1 ? ' is' : 's are'} not accepted`,
    usages.join('\n       '),
  )
}

/** An empty argument is mostly an unset variable of a shell: a command that guessed what it meant would act on too much. */
function refuseEmpty(command: Command, args: Readonly<Record<string, string>>, rest: readonly string[]): void {
  const shown = Object.keys(args).find((name) => args[name] === '')
  if (shown !== undefined) throw new UsageError(`<${shown}> must not be empty`)
  if (rest.includes('')) throw new UsageError(`${TAIL_TEXT[command.tail].join(' and ')} must not be empty`)
}

/** Whether every required argument that is JSON by its name looks like it. */
function hasJsonInPlace(slots: readonly Slot[], values: readonly string[]): boolean {
  return slots.every(
    ({ name, isOptional }, index) =>
      isOptional || values[index] === undefined || !name.startsWith('JSON') || isJsonWord(values[index]),
  )
}

/**
 * Whether the only word after the arguments is a token rather than a domain: a domain is an id or a route, at most 36
 * characters without a dot; a token is longer or has dots.
 */
export function looksLikeToken(value: string): boolean {
  return value.length > 36 || value.includes('.')
}
