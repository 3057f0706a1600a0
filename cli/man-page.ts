/** Renders the manual page skein(1) from the command tables. `npm run generate` writes it to docs/skein.1. */
import type { CommandLineVariable } from '#core/config/index.ts'
import type { Group } from './shared/command.ts'
import { FLAGS } from './shared/flags.ts'
import type { Flag } from './shared/flags.ts'
import { GROUPS } from './groups.ts'
import { exampleLine } from './help.ts'
import { usageOf } from './shared/resolve.ts'

const MEANINGS: Readonly<Record<CommandLineVariable, string>> = {
  SKEIN_URL: 'address of every service',
  SKEIN_MANAGER_URL: 'address of the task manager',
  SKEIN_TOKEN: 'token that overrides the login',
  SKEIN_PASSWORD: 'password of skein login',
  SKEIN_REGISTRY_PASSWORD: 'password of skein modules push --registry-user',
  SKEIN_DOMAIN: 'domain of the commands',
  SKEIN_CONTEXT: 'context of the commands',
  SKEIN_CONFIG: 'configuration file',
  SKEIN_CONFIG_DIR: 'folder of configuration file and contexts, instead of ~/.config/skein',
}

/** Environment variables of the command line. */
export const VARIABLES: readonly (readonly [string, string])[] = [
  ...Object.entries(MEANINGS),
  ['NODE_EXTRA_CA_CERTS', 'certificates of authorities to trust, as PEM'],
  ['NO_COLOR', 'disables colours when set'],
]

export async function renderManPage(): Promise<string> {
  const groups: { name: string; summary: string; group: Group }[] = []
  for (const entry of GROUPS) groups.push({ name: entry.name, summary: entry.summary, group: await entry.load() })
  return [
    '.TH SKEIN 1 "" "Skein" "User Commands"',
    '.SH NAME',
    'skein \\- devices, channels, messages and WebAssembly tasks from the command line',
    '.SH SYNOPSIS',
    '.B skein',
    '\\fIgroup\\fR \\fIcommand\\fR [\\fIarguments\\fR] [\\fIflags\\fR]',
    '.SH DESCRIPTION',
    'skein wraps the HTTP API of Skein.',
    'On a terminal answers are tables, in a pipe and with \\fB\\-\\-raw\\fR they are JSON.',
    'A JSON argument may be \\fB@file\\fR or \\fB\\-\\fR for standard input.',
    'A domain and token at the end of a command override \\fBskein context\\fR and \\fBskein login\\fR.',
    '.SH OPTIONS',
    ...FLAGS.filter((flag: Flag) => flag.group !== undefined).flatMap(option),
    '.SH COMMANDS',
    ...groups.flatMap(({ name, summary, group }) => [
      `.SS ${roff(name)}: ${roff(summary)}`,
      ...group.commands
        .filter((command) => command.isOlder !== true)
        .flatMap((command) => [
          '.TP',
          `.B ${roff(usageOf(name, command))}`,
          `${roff(capital(command.summary))}.`,
          ...(command.flags ?? []).map((flag) => `\\fB\\-\\-${roff(flag)}\\fR:` + ` ${roff(summaryOf(flag))}.`),
          '.br',
          `Example: ${roff(exampleLine(name, command))}`,
        ]),
    ]),
    '.SH ENVIRONMENT',
    ...VARIABLES.flatMap(([name, meaning]) => ['.TP', `.B ${name}`, roff(capital(meaning))]),
    '.SH FILES',
    '.TP',
    '.B ./config.toml, ~/.config/skein/config.toml',
    'Configuration; the first file that exists is used. Addresses, TLS verification and tokens of the file in the current folder',
    'are used only after you agree, or with \\-\\-config.',
    '.TP',
    '.B ~/.config/skein/contexts.json',
    'Contexts, tokens and consents for folders, readable only by the owner.',
    '.SH EXIT STATUS',
    '0 success, 1 failure, 2 wrong usage.',
    '',
  ].join('\n')
}

function option(flag: Flag): string[] {
  const value = flag.value === undefined ? '' : ` \\fI${roff(flag.value)}\\fR`
  const short = flag.short === undefined ? '' : `\\fB\\-${flag.short}\\fR, `
  return ['.TP', `${short}\\fB\\-\\-${roff(flag.name)}\\fR${value}`, `${roff(capital(flag.summary))}.`]
}

const summaryOf = (name: string): string => FLAGS.find((flag) => flag.name === name)?.summary ?? ''
const capital = (text: string): string => `${text[0]?.toUpperCase() ?? ''}${text.slice(1)}`

/** Escapes text for roff: no request at the beginning of a line, dashes that can be copied. */
function roff(text: string): string {
  const escaped = text.replaceAll('\\', '\\e').replaceAll('-', '\\-').replaceAll('"', '\\(dq')
  return /^[.']/.test(escaped) ? `\\&${escaped}` : escaped
}
