/**
 * The entry of `skein`: separates flags from words, finds the command, runs it, and prints a failure as one line. Exit
 * codes: 0 success, 1 failure, 2 wrong usage.
 */
import { EXIT_FAILED, EXIT_WRONG_USAGE } from '#core/errors/index.ts'
import { HOME } from '#core/installation.ts'
import type { Group } from './shared/command.ts'
import { CommandError, InterruptedError, UsageError } from './shared/failures.ts'
import { flagNamed, parseFlags } from './shared/flags.ts'
import type { GivenFlags } from './shared/flags.ts'
import { findGroup } from './groups.ts'
import type { Invocation } from './shared/invocation.ts'

const stop = new AbortController()

async function newerWordsOf(words: readonly string[]): Promise<readonly string[]> {
  if (findGroup(words[0] ?? '')?.hasOlderWords !== true) return words
  const { newerWords } = await import('./older-words.ts')
  return newerWords(words)
}

async function main(argv: readonly string[]): Promise<void> {
  const { flags, positionals } = parseFlags(argv)
  const [groupName = '', ...words] = await newerWordsOf(positionals)
  if (flags.has('version')) return void process.stdout.write(`skein ${await version()}\n`)
  if (groupName === '' || groupName === 'help') return await showHelp(words, groupName !== '' || flags.has('help'))
  const entry = findGroup(groupName)
  if (entry === undefined)
    throw new UsageError(`unknown command group ${groupName}`, 'skein <group> <command>; see skein --help')
  const group = await entry.load()
  if (flags.has('help')) return await showHelp([groupName, ...words], true)
  const { resolveCommand, usageOf } = await import('./shared/resolve.ts')
  const resolved = resolveCommand(group, groupName, words)
  requireKnownFlags(flags, resolved.command.flags ?? [], usageOf(groupName, resolved.command))
  const { runCommand } = await import('./shared/run-command.ts')
  await runCommand(await invocation(flags), group, resolved)
}

async function showHelp(words: readonly string[], wasAsked: boolean): Promise<void> {
  const help = await import('./help.ts')
  const [groupName, ...rest] = words
  if (groupName === undefined) {
    if (wasAsked) return void process.stdout.write(help.overview())
    process.stderr.write(help.overview())
    process.exitCode = EXIT_WRONG_USAGE
    return
  }
  if (groupName === 'flags') return void process.stdout.write(help.flagHelp())
  const entry = findGroup(groupName)
  if (entry === undefined) throw new UsageError(`unknown command group ${groupName}`, 'skein help <group>')
  const group = await entry.load()
  process.stdout.write(help.commandHelp(groupName, commandsAt(group, rest), group))
}

/** The rows of these words, or all rows that begin with them if they are not a whole command. */
function commandsAt(group: Group, words: readonly string[]): Group['commands'] {
  for (let length = words.length; length > 0; length -= 1) {
    const text = words.slice(0, length).join(' ')
    const found = group.commands.filter((command) => command.words === text || command.words.startsWith(`${text} `))
    if (found.length > 0) return found
  }
  return []
}

function requireKnownFlags(flags: GivenFlags, own: readonly string[], usage: string): void {
  for (const name of flags.names())
    if (flagNamed(name).group === undefined && !own.includes(name))
      throw new UsageError(`this command has no flag --${name}`, usage)
}

async function invocation(flags: GivenFlags): Promise<Invocation> {
  return {
    flags,
    environment: process.env,
    streams: { stdout: process.stdout, stderr: process.stderr },
    signal: stop.signal,
    version: await version(),
  }
}

async function version(): Promise<string> {
  const { readFile } = await import('node:fs/promises')
  const { version: found } = JSON.parse(await readFile(`${HOME}/package.json`, 'utf8')) as { version: string }
  return found
}

async function report(error: unknown): Promise<number> {
  const { createOutput } = await import('./shared/output.ts')
  const output = createOutput({ stdout: process.stdout, stderr: process.stderr }, false, process.env)
  if (error instanceof UsageError) {
    if (error.usage === undefined) output.error(error.message)
    else output.usage(error.usage, error.message)
    return EXIT_WRONG_USAGE
  }
  if (error instanceof InterruptedError) output.note(error.message)
  else if (error instanceof CommandError) output.error(error.message, error.hint)
  else
    output.error(`internal error in skein: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`)
  return EXIT_FAILED
}

// A second Ctrl-C ends the process immediately.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stop.abort())
// The reader of a pipe can close it early: `skein clients get all | head`.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error
  process.exit()
})

try {
  await main(process.argv.slice(2))
} catch (error) {
  process.exitCode = await report(error)
}
