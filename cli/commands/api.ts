/** `skein api`: any request, with the login and the form of output of the other commands. */
import type { ApiRequest, Cli, Group } from '../shared/command.ts'
import { UsageError } from '../shared/failures.ts'
import { SERVICES } from '../shared/services.ts'
import { arg, parseJson } from '../shared/values.ts'
import type { Given } from '../shared/values.ts'

const METHODS = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'] as const

export const api: Group = {
  name: 'api',
  summary: 'any other request',
  commands: [
    {
      words: '',
      args: '<method> <path>',
      tail: 'user',
      summary: 'send any request; manager:/tasks names a service, {domain} the domain in use',
      example: 'GET /{domain}/clients --query limit=2',
      flags: ['body'],
      run: send,
    },
  ],
}

async function send(cli: Cli, given: Given): Promise<void> {
  const method = METHODS.find((one) => one === arg(given, 'method').toUpperCase())
  if (method === undefined) throw new UsageError(`<method> must be one of ${METHODS.join(', ')}`)
  const [, named = 'host', path = ''] = /^(?:([a-z]+):)?(\/.*)$/.exec(arg(given, 'path')) ?? []
  const service = SERVICES.find((one) => one === named)
  if (path === '' || service === undefined)
    throw new UsageError('<path> must begin with a slash, or with a service and a colon, such as manager:/tasks')
  if (path.includes('{domain}') && given.domain === undefined)
    throw new UsageError('{domain} is not set: use --domain, or skein context domain ID')
  const body = given.flags.get('body')
  const request: ApiRequest = {
    method,
    service,
    path: path.replaceAll('{domain}', encodeURIComponent(given.domain ?? '')),
    query: Object.fromEntries(given.flags.all('query').map((pair) => splitPair(pair))),
    ...(body === undefined ? {} : { json: parseJson(body, '--body') }),
    authorization: 'optional',
    token: given.credential,
  }
  cli.show('data', await cli.request(request))
}

function splitPair(pair: string): [string, string] {
  const split = pair.indexOf('=')
  if (split < 1) throw new UsageError('--query must be KEY=VALUE')
  return [pair.slice(0, split), pair.slice(split + 1)]
}
