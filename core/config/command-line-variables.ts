/** Environment variables of the command `skein`. The programs ignore them, because a shell may use both. */
export const COMMAND_LINE_VARIABLES = [
  'SKEIN_URL',
  'SKEIN_MANAGER_URL',
  'SKEIN_TOKEN',
  'SKEIN_PASSWORD',
  'SKEIN_REGISTRY_PASSWORD',
  'SKEIN_DOMAIN',
  'SKEIN_CONTEXT',
  'SKEIN_CONFIG',
  'SKEIN_CONFIG_DIR',
] as const
export type CommandLineVariable = (typeof COMMAND_LINE_VARIABLES)[number]
