/**
 * The common frame of programs: arguments, `--help`, settings, the logger, and the lifecycle. Files in `programs/` only declare
 * their parts.
 */
import { parseArgs } from 'node:util'
import { processEnvironment, readConfigs, unknownVariables } from '../config/index.ts'
import type { ConfigsOf, Environment, SettingGroups, Settings } from '../config/index.ts'
import { UsageError, runUntilStopped, errorMessageOf } from './lifecycle.ts'
import type { Lifecycle } from './lifecycle.ts'
import { isStartedMessage } from './parent.ts'
import type { ParentMessage } from './parent.ts'
import { LOG_LEVELS, createHeldLogger, createLogger } from '../logging/index.ts'
import type { HeldLines, LogLevel, Logger } from '../logging/index.ts'
import { readBuildInfo } from '../build-info.ts'
import { SINGLE_FILE } from '../installation.ts'
import { newId } from '../ids.ts'
import { TRACING_SETTINGS, startTracing } from '../tracing/index.ts'

export type Command<G extends SettingGroups> = {
  summary: string
  /** The operands that must and that may stand after the word, for `--help`: `FILE [SHA256]`. */
  operands?: string
  /** The least and the largest number of operands; default: none. */
  operandCounts?: readonly [least: number, most: number]
  /** `print` writes one line at once. */
  run: (config: ConfigsOf<G>, operands: readonly string[], print: (line: string) => void) => Promise<void>
}

export type Program<G extends SettingGroups> = {
  /** The npm script that starts it. */
  name: string
  /** One sentence for `--help`. */
  summary: string
  /** The settings by room. Several rooms may read the same variable. */
  settings: G
  /** Flags of the command line and the setting that each sets; `isSwitch` marks a flag without a value. */
  flags?: Readonly<Record<string, { setting: string; isSwitch?: boolean }>>
  /** The operand that must stand after the name, and the setting that it stands for. */
  operand?: { name: string; setting: string }
  /** Words that may stand after the name instead: each prints lines and ends the process. */
  commands?: Readonly<Record<string, Command<G>>>
  /** A variable with one of these prefixes that is no setting, neither of this program nor of `otherSettings`, is misspelt. */
  ownPrefixes: readonly string[]
  /**
   * Returns the settings of the programs that may share the environment with this one. It is called only when a variable belongs to no
   * setting of this program.
   */
  otherSettings: () => Promise<readonly Settings[]>
  /**
   * Another program may start this one before all of its settings are known: over an IPC link, the first message of the parent
   * is a `ParentMessage`. The program ends with its parent.
   */
  mayHaveParent?: boolean
  /** The name of this process in the log, where several processes run this program. */
  process?: string | undefined
  /**
   * It shows the progress of its start: log lines wait until `run` has returned. `endLine` is called before other
   * output, `end` when the start fails or is stopped.
   */
  progress?: { endLine(): void; end(): void }
  run: (life: Lifecycle, config: ConfigsOf<G>, logger: Logger, environment: Environment) => Promise<void>
}

function usageOf<G extends SettingGroups>(program: Program<G>): string {
  const { name, summary, settings, flags = {}, commands = {}, operand } = program
  const options = Object.entries(flags).map(
    ([flag, { setting, isSwitch }]) => `  --${flag}${isSwitch === true ? '' : ' VALUE'}  sets ${setting}`,
  )
  const words = Object.entries(commands).map(
    ([word, command]) =>
      `  ${[word, ...(command.operands === undefined ? [] : [command.operands])].join(' ')}  ${command.summary}`,
  )
  const variables = [
    ...new Map(
      [...Object.values(settings), TRACING_SETTINGS]
        .flatMap((group) => Object.values(group))
        .map((one) => [one.name, one]),
    ).values(),
  ].map((one) => `  ${one.name.padEnd(28)} ${one.description} (default: ${one.defaultText})`)
  return [
    `Usage: ${SINGLE_FILE?.program ?? `npm run ${name}`}${options.length === 0 ? '' : `${SINGLE_FILE === undefined ? ' --' : ''} ${operand === undefined ? '' : `${operand.name} `}${words.length === 0 ? '' : '[command] '}[flags]`}`,
    '',
    summary,
    '',
    ...(words.length === 0 ? [] : ['Commands:', ...words, '']),
    ...(options.length === 0 ? [] : ['Flags:', ...options, '']),
    ...(operand === undefined ? [] : [`${operand.name} stands for ${operand.setting}.`, '']),
    'Settings are environment variables. A secret may be in a file that NAME_FILE names instead:',
    ...variables,
    '',
  ].join('\n')
}

type Given = { isHelp: boolean; overrides: Environment; command: string | undefined; operands: readonly string[] }

/** Flags as the variables that they stand for, and the command. Throws UsageError for anything else. */
function readFlags<G extends SettingGroups>({ flags = {}, commands = {}, operand }: Program<G>): Given {
  try {
    const options = Object.fromEntries(
      Object.entries(flags).map(([flag, { isSwitch }]) => [
        flag,
        { type: isSwitch === true ? ('boolean' as const) : ('string' as const) },
      ]),
    )
    const { values, positionals } = parseArgs({
      options: { ...options, help: { type: 'boolean', short: 'h' } },
      allowPositionals: Object.keys(commands).length > 0 || operand !== undefined,
    })
    const ofOperand = operand === undefined ? undefined : positionals.shift()
    const [command, ...others] = positionals
    if (command !== undefined && !Object.hasOwn(commands, command))
      throw new UsageError(`there is no command ${positionals.join(' ')}`)
    const { operands: named = '', operandCounts: [least, most] = [0, 0] } = commands[command ?? ''] ?? {}
    if (values.help !== true && (others.length < least || others.length > most))
      throw new UsageError(
        most === 0 ? `there is no command ${positionals.join(' ')}` : `the command is ${command} ${named}`,
      )
    const given = values as Record<string, string | boolean | undefined>
    const overrides = Object.entries(flags).flatMap(([flag, { setting }]) =>
      given[flag] === undefined ? [] : [[setting, String(given[flag])]],
    )
    if (operand !== undefined && ofOperand !== undefined) overrides.push([operand.setting, ofOperand])
    return {
      isHelp: values.help === true,
      overrides: Object.fromEntries(overrides) as Environment,
      command,
      operands: others,
    }
  } catch (error) {
    // Node's message continues with advice about positional arguments.
    const [sentence] = errorMessageOf(error).split('. ')
    throw new UsageError(`${sentence}; see --help`)
  }
}

/** Runs the program and ends the process: 0 stopped by a signal, 1 failed, 2 wrong usage. */
export async function runProgram<G extends SettingGroups>(program: Program<G>): Promise<void> {
  const environment = processEnvironment()
  const named = environment['SKEIN_LOG_LEVEL']
  // Used until the settings are read; an invalid level is reported with the other settings.
  const level: LogLevel = LOG_LEVELS.find((one) => one === named) ?? 'info'
  const isChild = program.mayHaveParent === true && process.connected
  const { logger, held } = startLog(program, level, isChild)
  await runUntilStopped(logger, async (life) => {
    const onStop = () => {
      if (life.isStarting) program.progress?.end()
      held?.releaseWarnings()
    }
    life.signal.addEventListener('abort', onStop, { once: true })
    if (!isChild) life.onStarted(() => held?.release())
    const { isHelp, overrides, command, operands } = readFlags(program)
    if (isHelp) {
      process.stdout.write(usageOf(program))
      return await life.stop()
    }
    const fromParent = isChild ? await settingsOfParent(life, held) : {}
    if (life.signal.aborted) return
    const merged = { ...environment, ...fromParent, ...overrides }
    const { tracing, ...rest } = readConfigs({ ...program.settings, tracing: TRACING_SETTINGS }, merged)
    const config = rest as unknown as ConfigsOf<G>
    // The parent process has already warned.
    if (!isChild) for (const warning of await misspelt(program, environment)) logger.warn(warning)
    const asked = command === undefined ? undefined : program.commands?.[command]
    if (asked !== undefined) {
      await asked.run(config, operands, (line) => void process.stdout.write(`${line}\n`))
      return await life.stop()
    }
    if (tracing.endpoint !== '') {
      const service = `skein-${program.name}`
      await life.start('tracing', async () => {
        const started = await startTracing(tracing, { service, version: readBuildInfo().version, instance: newId() })
        return { value: undefined, stop: () => started.stop() }
      })
    }
    await program.run(life, config, logger, merged)
  })
}

/** A user who asks for details sees them when they happen. */
const UNHELD_LEVELS: readonly LogLevel[] = ['trace', 'debug']

function startLog<G extends SettingGroups>(
  program: Program<G>,
  level: LogLevel,
  isChild: boolean,
): { logger: Logger; held?: HeldLines } {
  const options = { name: program.name, level, process: program.process }
  const isHeld = (program.progress !== undefined || isChild) && !UNHELD_LEVELS.includes(level)
  return isHeld ? createHeldLogger(options, () => program.progress?.endLine()) : { logger: createLogger(options) }
}

/** The settings of the parent; empty when the program stops before they arrive. */
async function settingsOfParent(life: Lifecycle, held: HeldLines | undefined): Promise<Environment> {
  // When the parent ends in any way, the link closes and this program stops.
  process.once('disconnect', () => void life.stop())
  const first = await new Promise<ParentMessage | undefined>((resolve) => {
    process.once('message', (message) => resolve(message as ParentMessage))
    life.signal.addEventListener('abort', () => resolve(undefined), { once: true })
  })
  if (first?.isStarting === false) held?.release()
  process.on('message', (message) => {
    if (isStartedMessage(message)) held?.release()
  })
  return first?.settings ?? {}
}

async function misspelt<G extends SettingGroups>(program: Program<G>, environment: Environment): Promise<string[]> {
  const own = [...Object.values(program.settings), TRACING_SETTINGS]
  const isOwn = unknownVariables(own, environment, program.ownPrefixes).length === 0
  return isOwn ? [] : unknownVariables([...own, ...(await program.otherSettings())], environment, program.ownPrefixes)
}
