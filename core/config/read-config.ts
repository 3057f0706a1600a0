/** Reads every setting once, reports all faults together, and never repeats a secret. */
import { ServiceError } from '../errors/index.ts'
import type { ErrorDetail } from '../errors/index.ts'
import { nearestName } from '../nearest.ts'
import { readSecretFile } from './secret-file.ts'
import { COMMAND_LINE_VARIABLES } from './command-line-variables.ts'
import type { ConfigOf, Setting, Settings } from './settings.ts'

export type Environment = Readonly<Record<string, string | undefined>>

/** The environment of this process. No other file reads it. */
export function processEnvironment(): Environment {
  return { ...process.env }
}

/**
 * Reads the settings from the environment; an empty variable counts as absent. Throws `malformed` with one detail and one line
 * per invalid variable. The value of a secret is never included.
 */
export function readConfig<S extends Settings>(settings: S, environment: Environment): ConfigOf<S> {
  return readConfigs({ settings }, environment).settings
}

export type SettingGroups = Record<string, Settings>
export type ConfigsOf<G extends SettingGroups> = { readonly [K in keyof G]: ConfigOf<G[K]> }

/** Reads the settings of several rooms as `readConfig` does. They may read the same variable; all faults are reported together. */
export function readConfigs<G extends SettingGroups>(groups: G, environment: Environment): ConfigsOf<G> {
  const faults = new Map<string, ErrorDetail>()
  const configs = Object.entries(groups).map(([name, settings]) => [
    name,
    Object.freeze(readGroup(settings, environment, faults)),
  ])
  if (faults.size > 0) {
    const details = [...faults.values()]
    throw new ServiceError('malformed', details.map((fault) => `${fault.path} ${fault.message}`).join('\n'), {
      details,
    })
  }
  return Object.freeze(Object.fromEntries(configs)) as ConfigsOf<G>
}

/** Returns the variable that names a file with a secret. Undefined for a setting that is not secret. */
function fileVariableOf({ name, isSecret }: Setting<unknown>): string | undefined {
  return isSecret ? `${name}_FILE` : undefined
}

/** The variables of a setting; the first that is not empty counts. */
export function variablesOf(setting: Setting<unknown>): string[] {
  const file = fileVariableOf(setting)
  return [setting.name, ...setting.aliases, ...(file === undefined ? [] : [file])]
}

function readGroup(
  settings: Settings,
  environment: Environment,
  faults: Map<string, ErrorDetail>,
): Record<string, unknown> {
  const config: Record<string, unknown> = {}
  for (const [key, setting] of Object.entries(settings)) {
    const found = variablesOf(setting).find((name) => (environment[name] ?? '') !== '')
    const value = found === undefined ? undefined : environment[found]
    if (found === undefined || value === undefined) {
      config[key] = setting.fallback
      continue
    }
    const isFile = found === fileVariableOf(setting)
    try {
      config[key] = setting.parse(isFile ? readSecretFile(value) : value)
    } catch (error) {
      const wanted = error instanceof Error ? error.message : 'valid'
      faults.set(found, {
        path: found,
        message: `must be ${wanted}${setting.isSecret && !isFile ? '' : `, not ${JSON.stringify(value)}`}`,
      })
    }
  }
  return config
}

/**
 * Variables with our prefix that are not settings, each with the nearest known name. A misspelt setting is otherwise ignored
 * silently. `settings` are those of every program that may share the environment.
 */
export function unknownVariables(
  settings: readonly Settings[],
  environment: Environment,
  prefixes: readonly string[],
): string[] {
  const known = new Set<string>(settings.flatMap((one) => Object.values(one)).flatMap(variablesOf))
  const isElsewhere = new Set<string>(COMMAND_LINE_VARIABLES)
  return Object.keys(environment)
    .filter((name) => prefixes.some((prefix) => name.startsWith(prefix)) && !known.has(name) && !isElsewhere.has(name))
    .toSorted()
    .map((name) => {
      const near = nearestName(name, known)
      return near === undefined ? `${name} is not a setting` : `${name} is not a setting; did you mean ${near}?`
    })
}
