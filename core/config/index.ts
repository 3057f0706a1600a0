export { Secret } from './secret.ts'
export {
  autoInteger,
  bytes,
  choice,
  durationMs,
  flag,
  httpUrl,
  integer,
  labels,
  list,
  optionalAddress,
  optionalBytes,
  optionalFolderUrl,
  optionalInteger,
  optionalText,
  optionalUrl,
  port,
  ratio,
  secret,
  text,
} from './settings.ts'
export type { ConfigOf, Setting, Settings } from './settings.ts'
export type { CommandLineVariable } from './command-line-variables.ts'
export { processEnvironment, readConfig, readConfigs, unknownVariables, variablesOf } from './read-config.ts'
export type { ConfigsOf, Environment, SettingGroups } from './read-config.ts'
