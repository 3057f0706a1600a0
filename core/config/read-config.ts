/** Reads every setting once, reports all faults together, and never repeats a secret. */
import { ServiceError } from '../errors/index.ts'
import type { ErrorDetail } from '../errors/index.ts'
import { nearestName } from '../nearest.ts'
import { COMMAND_LINE_VARIABLES } from './command-line-variables.ts'
import type { ConfigOf, Setting, Settings } from './settings.ts'

export type Environment = Readonly<Record<string, string | undefined>>

/** The variables of this process. No other file of the tree reads them. */
export function processEnvironment(): Environment {
  return { ...process.env }
}

/**
 * Reads the settings from the environment; an empty variable counts as absent.
 * Throws `malformed` with one detail and one line per wrong variable; the value of a secret is never in it.
 */
export function readConfig<S extends Settings>(settings: S, environment: Environment): ConfigOf<S> {
  return readConfigs({ settings }, environment).settings
}

export type SettingGroups = Record<string, Settings>
export type ConfigsOf<G extends SettingGroups> = { readonly [K in keyof G]: ConfigOf<G[K]> }

/** The same for the settings of several rooms, which may read the same variable; all faults are reported together. */
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

function readGroup(
  settings: Settings,
  environment: Environment,
  faults: Map<string, ErrorDetail>,
): Record<string, unknown> {
  const config: Record<string, unknown> = {}
  for (const [key, setting] of Object.entries(settings)) {
    const found = [setting.name, ...setting.aliases].find((name) => (environment[name] ?? '') !== '')
    const value = found === undefined ? undefined : environment[found]
    if (found === undefined || value === undefined) {
      config[key] = setting.fallback
      continue
    }
    try {
      config[key] = setting.parse(value)
    } catch (error) {
      const wanted = error instanceof Error ? error.message : 'valid'
      faults.set(found, {
        path: found,
        message: `must be ${wanted}${setting.isSecret ? '' : `, not ${JSON.stringify(value)}`}`,
      })
    }
  }
  return config
}

/**
 * Variables with our prefix that no setting knows, each with the nearest known name: a misspelt setting is the most
 * common reason why "it does not do what I configured".
 */
export function unknownVariables(
  settings: readonly Settings[],
  environment: Environment,
  prefixes: readonly string[],
): string[] {
  const known = new Set<string>(
    settings
      .flatMap((one) => Object.values(one))
      .flatMap((setting: Setting<unknown>) => [setting.name, ...setting.aliases]),
  )
  const isElsewhere = new Set<string>(COMMAND_LINE_VARIABLES)
  return Object.keys(environment)
    .filter((name) => prefixes.some((prefix) => name.startsWith(prefix)) && !known.has(name) && !isElsewhere.has(name))
    .toSorted()
    .map((name) => {
      const near = nearestName(name, known)
      return near === undefined ? `${name} is not a setting` : `${name} is not a setting; did you mean ${near}?`
    })
}
