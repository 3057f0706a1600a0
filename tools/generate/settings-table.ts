/** Generates docs/settings.md: the table of every variable that a program reads. */
import {
  ARCHIVE_SETTINGS,
  COAP_SETTINGS,
  CONNECT_SETTINGS,
  IDENTITY_SETTINGS,
  MQTT_SETTINGS,
  PROCESSES_SETTINGS,
  PROVISIONING_SETTINGS,
  PUBLISHED_SETTINGS,
  RULES_SETTINGS,
} from '#api/index.ts'
import { BACKUP_SETTINGS } from '#postgres/backup/index.ts'
import type { Setting, Settings } from '#core/config/index.ts'
import { INFRASTRUCTURE_SETTINGS } from '#infrastructure/index.ts'
import { HTTP_SETTINGS } from '#http/index.ts'
import { LOG_LEVEL_SETTING } from '#core/logging/index.ts'
import { TRACING_SETTINGS } from '#core/tracing/index.ts'
import { MANAGER_SETTINGS } from '#manager/index.ts'
import { PROXY_SETTINGS } from '#proxy/index.ts'
import { WORKER_SETTINGS } from '#worker/index.ts'

/** npm script -> its settings; a test compares them with `--help` of each program. */
export const PROGRAM_SETTINGS: Readonly<Record<string, readonly Settings[]>> = {
  start: [
    INFRASTRUCTURE_SETTINGS,
    HTTP_SETTINGS,
    IDENTITY_SETTINGS,
    PROVISIONING_SETTINGS,
    COAP_SETTINGS,
    CONNECT_SETTINGS,
    RULES_SETTINGS,
    ARCHIVE_SETTINGS,
    MQTT_SETTINGS,
    PROCESSES_SETTINGS,
    MANAGER_SETTINGS,
    PROXY_SETTINGS,
    WORKER_SETTINGS,
    TRACING_SETTINGS,
  ],
  api: [
    INFRASTRUCTURE_SETTINGS,
    HTTP_SETTINGS,
    IDENTITY_SETTINGS,
    PROVISIONING_SETTINGS,
    COAP_SETTINGS,
    CONNECT_SETTINGS,
    RULES_SETTINGS,
    ARCHIVE_SETTINGS,
    MQTT_SETTINGS,
    { grpcPort: MANAGER_SETTINGS.grpcPort },
    PROCESSES_SETTINGS,
    TRACING_SETTINGS,
  ],
  manager: [INFRASTRUCTURE_SETTINGS, HTTP_SETTINGS, IDENTITY_SETTINGS, MANAGER_SETTINGS, TRACING_SETTINGS],
  worker: [WORKER_SETTINGS, PUBLISHED_SETTINGS, LOG_LEVEL_SETTING, TRACING_SETTINGS],
  proxy: [PROXY_SETTINGS, LOG_LEVEL_SETTING, TRACING_SETTINGS],
  backup: [BACKUP_SETTINGS, TRACING_SETTINGS],
  restore: [BACKUP_SETTINGS, TRACING_SETTINGS],
}

export type SettingRow = { setting: Setting<unknown>; meanings: readonly string[]; programs: readonly string[] }

/** Each variable once, by name, with the programs that read it. Throws if two programs declare different defaults. */
export function settingRows(): SettingRow[] {
  const rows = new Map<string, { setting: Setting<unknown>; meanings: Set<string>; programs: string[] }>()
  for (const [program, groups] of Object.entries(PROGRAM_SETTINGS)) {
    for (const setting of groups.flatMap((group) => Object.values(group))) {
      const row = rows.get(setting.name) ?? { setting, meanings: new Set(), programs: [] }
      if (row.setting.defaultText !== setting.defaultText)
        throw new Error(`${setting.name} has two defaults: ${row.setting.defaultText} and ${setting.defaultText}`)
      row.meanings.add(setting.description)
      if (!row.programs.includes(program)) row.programs.push(program)
      rows.set(setting.name, row)
    }
  }
  return [...rows.values()]
    .map(({ setting, meanings, programs }) => ({ setting, programs, meanings: [...meanings] }))
    .toSorted((left, right) => (left.setting.name < right.setting.name ? -1 : 1))
}

export function renderSettings(): string {
  const lines = settingRows().map(({ setting, meanings, programs }) => {
    const aliases = setting.aliases.length === 0 ? '' : ` (also ${setting.aliases.map(code).join(', ')})`
    const plain =
      ['none', 'host name', 'number of cores'].includes(setting.defaultText) || setting.defaultText.includes(' ')
    const shown = plain ? setting.defaultText : code(setting.defaultText)
    return `| ${code(setting.name)}${aliases} | ${shown} | ${meanings.join('. ')}${setting.isSecret ? ' (never printed)' : ''} | ${programs.join(', ')} |`
  })
  return [
    '# Settings',
    '',
    'Every setting is an environment variable, read once when a program starts; `npm run <program> -- --help` prints those',
    'of one program. An empty variable is treated as absent. A wrong value fails the start. A program warns about every name that begins with `SKEIN_` or',
    '`PROXY_` and is no setting, with the nearest one. A secret (never printed) may be in a file instead: `NAME_FILE` names it, for example',
    '`SKEIN_DATABASE_URL_FILE`; the variable itself overrides the file. Durations are written like `90s`, `15m` or `1h30m`; sizes like `512KiB` or `1MiB`.',
    '',
    'Written by `npm run generate`; a setting is declared in the `config.ts` or `settings.ts` of its room.',
    '',
    '| Variable | Default | Meaning | Read by |',
    '|---|---|---|---|',
    ...lines,
    '',
  ].join('\n')
}

function code(text: string): string {
  return `\`${text.replaceAll('|', '\\|')}\``
}
