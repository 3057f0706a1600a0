/** What one call of the program was given, and the settings that follow from it. */
import { join } from 'node:path'
import { configFolder, readConfigFile } from './config-file.ts'
import type { GivenFlags } from './flags.ts'
import { readContexts } from './login-store.ts'
import type { Stream } from './output.ts'
import { environmentAddresses, flagAddresses, resolveAddress } from './settings.ts'
import type { Environment, Settings } from './settings.ts'

const CONTENT_TYPE = 'application/senml+json'

export type Invocation = {
  flags: GivenFlags
  environment: Environment
  streams: { stdout: Stream; stderr: Stream }
  signal: AbortSignal
  version: string
}

/** Flag before environment before context before file (contract 15). */
export function readSettings({ flags, environment, version }: Invocation): Settings {
  const file = readConfigFile(flags.get('config') ?? filled(environment['SKEIN_CONFIG']), environment)
  const contextsPath = join(configFolder(environment), 'contexts.json')
  const all = readContexts(contextsPath)
  const contextName = flags.get('context') ?? filled(environment['SKEIN_CONTEXT']) ?? all.current
  const context = all.contexts[contextName]
  const given = { ...environmentAddresses(environment), ...flagAddresses(flags) }
  const sources = [
    { from: 'flag', addresses: flagAddresses(flags) },
    { from: 'environment', addresses: environmentAddresses(environment) },
    { from: `context ${contextName}`, addresses: context?.addresses ?? {} },
    { from: file.path, addresses: file.addresses },
  ]
  const tokenOfEnvironment = filled(environment['SKEIN_TOKEN'])
  const tokenOfFile = file.values['user_token']
  return {
    address: (service) => resolveAddress(service, sources),
    givenAddresses: given,
    isInsecure: flags.has('insecure') || file.values['tls_verification'] === 'false',
    isCurl: flags.has('curl'),
    isRaw: flags.names().includes('raw') ? flags.has('raw') : file.values['raw_output'] === 'true',
    contentType: flags.get('content-type') ?? file.values['msg_content_type'] ?? CONTENT_TYPE,
    filter: (name) => filled(flags.get(name) ?? file.values[name === 'identity' ? 'email' : name]),
    environment,
    contextName,
    contextsPath,
    configPath: file.path,
    domain: flags.get('domain') ?? filled(environment['SKEIN_DOMAIN']) ?? context?.domain,
    token:
      tokenOfEnvironment !== undefined
        ? { value: tokenOfEnvironment, from: 'SKEIN_TOKEN' }
        : tokenOfFile !== undefined
          ? { value: tokenOfFile, from: file.path }
          : undefined,
    version,
  }
}

const filled = (value: string | undefined): string | undefined => (value === '' ? undefined : value)
