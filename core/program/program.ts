/**
 * The frame of every program: arguments, `--help`, settings read once, the logger, and the life until a signal. A file
 * of `programs/` says only what it is made of.
 */
import { parseArgs } from 'node:util'
import { processEnvironment, readConfigs, unknownVariables } from '../config/index.ts'
import type { ConfigsOf, Environment, SettingGroups } from '../config/index.ts'
import { UsageError, runUntilStopped, sentenceOf } from './lifecycle.ts'
import type { Lifecycle } from './lifecycle.ts'
import { LOG_LEVELS, createLogger } from '../logging/index.ts'
import type { LogLevel, Logger } from '../logging/index.ts'

export type Program<G extends SettingGroups> = {
  /** The npm script that starts it. */
  name: string
  /** One sentence for `--help`. */
  summary: string
  /** By room; several may read the same variable. */
  settings: G
  /** Flags of the command line and the setting that each stands for; `true` marks a flag without a value. */
  flags?: Readonly<Record<string, { setting: string; isSwitch?: boolean }>>
  /** Words that may stand after the name instead: each prints a text and ends the process. */
  commands?: Readonly<Record<string, { summary: string; run: (config: ConfigsOf<G>) => Promise<string> }>>
  /** Variables with these prefixes must be settings; others belong to programs beside this one. */
  ownPrefixes: readonly string[]
  /**
   * Another program of ours may start this one before it knows all of its settings: over an IPC link, the first message
   * of the parent is the variables that are still missing. The program ends with its parent.
   */
  mayHaveParent?: boolean
  run: (life: Lifecycle, config: ConfigsOf<G>, logger: Logger, environment: Environment) => Promise<void>
}

function usageOf<G extends SettingGroups>({ name, summary, settings, flags = {}, commands = {} }: Program<G>): string {
  const options = Object.entries(flags).map(
    ([flag, { setting, isSwitch }]) => `  --${flag}${isSwitch === true ? '' : ' VALUE'}  stands for ${setting}`,
  )
  const words = Object.entries(commands).map(([word, command]) => `  ${word}  ${command.summary}`)
  const variables = [
    ...new Map(
      Object.values(settings)
        .flatMap((group) => Object.values(group))
        .map((one) => [one.name, one]),
    ).values(),
  ].map((one) => `  ${one.name.padEnd(28)} ${one.description} (default: ${one.defaultText})`)
  return [
    `Usage: npm run ${name}${options.length === 0 ? '' : ` -- ${words.length === 0 ? '' : '[command] '}[flags]`}`,
    '',
    summary,
    '',
    ...(words.length === 0 ? [] : ['Commands:', ...words, '']),
    ...(options.length === 0 ? [] : ['Flags:', ...options, '']),
    'Settings are environment variables:',
    ...variables,
    '',
  ].join('\n')
}

type Given = { isHelp: boolean; overrides: Environment; command: string | undefined }

/** Flags as the variables that they stand for, and the command. Throws UsageError for anything else. */
function readFlags<G extends SettingGroups>({ flags = {}, commands = {} }: Program<G>): Given {
  try {
    const options = Object.fromEntries(
      Object.entries(flags).map(([flag, { isSwitch }]) => [
        flag,
        { type: isSwitch === true ? ('boolean' as const) : ('string' as const) },
      ]),
    )
    const { values, positionals } = parseArgs({
      options: { ...options, help: { type: 'boolean', short: 'h' } },
      allowPositionals: Object.keys(commands).length > 0,
    })
    const [command, ...others] = positionals
    if (others.length > 0 || (command !== undefined && !Object.hasOwn(commands, command))) {
      throw new UsageError(`there is no command ${positionals.join(' ')}`)
    }
    const given = values as Record<string, string | boolean | undefined>
    const overrides = Object.entries(flags).flatMap(([flag, { setting }]) =>
      given[flag] === undefined ? [] : [[setting, String(given[flag])]],
    )
    return { isHelp: values.help === true, overrides: Object.fromEntries(overrides) as Environment, command }
  } catch (error) {
    // Node goes on about positional arguments where there may be some.
    const [sentence] = sentenceOf(error).split('. ')
    throw new UsageError(`${sentence}; see --help`)
  }
}

/** Runs the program and ends the process: 0 stopped as asked, 1 failed, 2 wrong usage. */
export async function runProgram<G extends SettingGroups>(program: Program<G>): Promise<void> {
  const environment = processEnvironment()
  const named = environment['SKEIN_LOG_LEVEL']
  // Lines before the settings are read; a wrong level is reported with the other settings.
  const level: LogLevel = LOG_LEVELS.find((one) => one === named) ?? 'info'
  const logger = createLogger({ name: program.name, level })
  await runUntilStopped(logger, async (life) => {
    const { isHelp, overrides, command } = readFlags(program)
    if (isHelp) {
      process.stdout.write(usageOf(program))
      return await life.stop()
    }
    const fromParent = program.mayHaveParent === true && process.connected ? await settingsOfParent(life) : {}
    if (life.signal.aborted) return
    const merged = { ...environment, ...fromParent, ...overrides }
    const config = readConfigs(program.settings, merged)
    for (const warning of unknownVariables(Object.values(program.settings), environment, program.ownPrefixes))
      logger.warn(warning)
    const asked = command === undefined ? undefined : program.commands?.[command]
    if (asked !== undefined) {
      process.stdout.write(await asked.run(config))
      return await life.stop()
    }
    await program.run(life, config, logger, merged)
  })
}

/** The first message of the parent; nothing when it ends before. */
async function settingsOfParent(life: Lifecycle): Promise<Environment> {
  // However the parent ends, the link closes and this program leaves too.
  process.once('disconnect', () => void life.stop())
  return await new Promise((resolve) => {
    process.once('message', (message) => resolve(message as Environment))
    life.signal.addEventListener('abort', () => resolve({}), { once: true })
  })
}
