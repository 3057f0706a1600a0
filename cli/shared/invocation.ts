/** The input of one call of the program, and its settings. */
import { contextsPathOf } from './config-file.ts'
import type { ConfigFile } from './config-file.ts'
import type { GivenFlags } from './flags.ts'
import { readContexts } from './login-store.ts'
import type { Stream } from './output.ts'
import { SERVICES } from './services.ts'
import type { ServiceName } from './services.ts'
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

/** Flags override the environment, which overrides the context, which overrides the file (contract 15). */
export function readSettings({ flags, environment, version }: Invocation, file: ConfigFile): Settings {
  const contextsPath = contextsPathOf(environment)
  const all = readContexts(contextsPath)
  const contextName = flags.get('context') ?? filled(environment['SKEIN_CONTEXT']) ?? all.current
  const context = all.contexts[contextName]
  const given = { ...environmentAddresses(environment), ...flagAddresses(flags) }
  const sources = [
    { from: 'flag', addresses: flagAddresses(flags) },
    { from: 'environment', addresses: environmentAddresses(environment) },
    { from: `context ${contextName}`, addresses: context?.addresses ?? {} },
    { from: file.addressesFrom, addresses: file.addresses },
  ]
  const address = (service: ServiceName) => resolveAddress(service, sources)
  return {
    address,
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
    token: tokenOf(environment, file, address),
    version,
  }
}

const filled = (value: string | undefined): string | undefined => (value === '' ? undefined : value)

/**
 * The token of the environment, else of the file, and the addresses that it can be sent to. SKEIN_TOKEN belongs to
 * addresses that the user set: by flag, environment, context, the user's own file or a named file, but not the file of
 * the current folder. The token of a file belongs to the addresses of this file, if it has any.
 */
function tokenOf(environment: Environment, file: ConfigFile, address: Settings['address']): Settings['token'] {
  const originOf = (url: string) => new URL(url).origin
  const ofEnvironment = filled(environment['SKEIN_TOKEN'])
  if (ofEnvironment !== undefined)
    return {
      value: ofEnvironment,
      from: 'SKEIN_TOKEN',
      isFor: (service) => !file.isOfFolder || address(service).from !== file.path,
    }
  const ofFile = file.values['user_token']
  if (ofFile === undefined) return undefined
  const sources = [{ from: file.path, addresses: file.addresses }]
  const origins = new Set(SERVICES.map((service) => originOf(resolveAddress(service, sources).url)))
  const namesAny = Object.keys(file.addresses).length > 0
  return {
    value: ofFile,
    from: file.path,
    isFor: (service) => !namesAny || origins.has(originOf(address(service).url)),
  }
}
