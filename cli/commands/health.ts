/** `skein health <service>`. */
import type { Cli, Group } from '../shared/command.ts'
import { UsageError } from '../shared/failures.ts'
import type { ServiceName } from '../shared/services.ts'
import { arg } from '../shared/values.ts'
import type { Given } from '../shared/values.ts'

/** Service names and their aliases. */
export const HEALTH_SERVICES: Readonly<Record<string, ServiceName>> = {
  users: 'users',
  clients: 'clients',
  things: 'clients',
  channels: 'channels',
  groups: 'groups',
  domains: 'domains',
  auth: 'auth',
  bootstrap: 'bootstrap',
  certs: 'certs',
  readers: 'reader',
  reader: 'reader',
  'http-adapter': 'http',
  journal: 'journal',
  invitations: 'invitations',
  provision: 'provision',
  manager: 'manager',
}

export const health: Group = {
  name: 'health',
  summary: 'health record of a service',
  commands: [
    {
      words: '',
      args: '<service>',
      tail: 'none',
      summary: 'show the health record of a service',
      example: 'users',
      run: show,
    },
  ],
}

async function show(cli: Cli, given: Given): Promise<void> {
  const name = arg(given, 'service')
  const service = HEALTH_SERVICES[name]
  if (service === undefined)
    throw new UsageError(`unknown service ${name}`, `skein health <${Object.keys(HEALTH_SERVICES).join('|')}>`)
  cli.show('data', await cli.request({ method: 'GET', service, path: pathOfHealth(service), authorization: 'none' }))
}

/** The address of the HTTP adapter ends in `/http`; its health record is at the parent path. */
export function pathOfHealth(service: ServiceName): string {
  return service === 'http' ? '/../health' : '/health'
}
