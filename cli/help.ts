/** Renders `--help` from the command tables. */
import type { Command, Group, GroupEntry } from './shared/command.ts'
import { FLAGS, flagNamed } from './shared/flags.ts'
import type { Flag } from './shared/flags.ts'
import { GROUPS } from './groups.ts'
import { usageOf } from './shared/resolve.ts'

const FLAG_WIDTH = 30
const GROUP_WIDTH = 14
const SECTIONS: readonly GroupEntry['section'][] = ['Start', 'Platform', 'Tasks', 'This program']
const FLAG_GROUPS = ['Where', 'Who', 'Output', 'Listings', 'Other'] as const

export function overview(): string {
  return [
    'skein: devices, channels, messages and WebAssembly tasks from the command line',
    '',
    'Usage: skein <group> <command> [<arguments>] [flags]',
    ...SECTIONS.flatMap((section) => [
      '',
      `${section}:`,
      ...GROUPS.filter((group) => group.section === section).map(
        ({ name, aliases = [], summary }) => `  ${[name, ...aliases].join(', ').padEnd(GROUP_WIDTH)}  ${summary}`,
      ),
    ]),
    '',
    'Quick start: skein up, then in another terminal skein login, skein clients create \'{"name": "pump"}\'',
    'More: skein <group> --help, skein <group> <command> --help, skein help flags, man skein',
    '',
  ].join('\n')
}

export function flagHelp(): string {
  return [
    'Flags of every command. A flag overrides the environment, the environment overrides the context,',
    'and the context overrides the configuration file.',
    ...FLAG_GROUPS.flatMap((group) => [
      '',
      `${group}:`,
      ...FLAGS.filter((flag: Flag) => flag.group === group).map((flag: Flag) => flagLine(flag)),
    ]),
    '',
  ].join('\n')
}

export function groupHelp(name: string, group: Group): string {
  const commands = group.commands.filter((command) => command.isOlder !== true)
  const only = commands.length === 1 && commands[0]?.words === '' ? commands[0] : undefined
  if (only !== undefined) return commandHelp(name, [only], group)
  return [
    `skein ${name}: ${group.summary}`,
    ...(group.description === undefined ? [] : ['', group.description]),
    '',
    'Commands:',
    ...commands.map((command) => {
      const left = `  ${[command.words, command.args].filter((part) => part !== '').join(' ')}`
      return left.length < 44
        ? `${left.padEnd(44)}  ${command.summary}`
        : `${left}\n${' '.repeat(46)}${command.summary}`
    }),
    '',
    `Examples and flags: skein ${name} <command> --help; flags of every command: skein help flags`,
    '',
  ].join('\n')
}

/** Rows with the same words: newest first. */
export function commandHelp(name: string, commands: readonly Command[], group: Group): string {
  const [first] = commands
  if (first === undefined) return groupHelp(name, group)
  const flags = [...new Set(commands.flatMap((command) => command.flags ?? []))].map(flagNamed)
  const hasListing = commands.some((command) => command.call?.query?.includes('limit'))
  return [
    `${first.summary[0]?.toUpperCase() ?? ''}${first.summary.slice(1)}.`,
    '',
    'Usage:',
    ...commands.map((command) => `  ${usageOf(name, command)}`),
    ...(commands.some(({ tail }) => tail === 'domain' || tail === 'user')
      ? ['', 'A domain and token at the end override the context and the login (skein login).']
      : []),
    '',
    commands.length === 1 ? 'Example:' : 'Examples:',
    ...commands.map((command) => `  ${exampleLine(name, command)}`),
    ...(flags.length === 0 ? [] : ['', 'Flags:', ...flags.map(flagLine)]),
    ...(hasListing
      ? ['', 'Listings: --limit, --offset, --all, --order, --dir, --name, --metadata, --status (skein help flags)']
      : []),
    '',
  ].join('\n')
}

export function exampleLine(name: string, command: Command): string {
  return ['skein', name, command.words, command.example].filter((part) => part !== '').join(' ')
}

export function flagLine(flag: Flag): string {
  const short = flag.short === undefined ? '    ' : `-${flag.short}, `
  const long = `--${flag.name}${flag.value === undefined ? '' : ` ${flag.value}`}`
  return `  ${`${short}${long}`.padEnd(FLAG_WIDTH)}  ${flag.summary}`
}
