/** `skein events`: changes as they happen, of a domain and of the task manager. */
import type { ApiRequest, Cli, Group } from '../command.ts'
import { follow } from '../event-stream.ts'
import { UsageError } from '../failures.ts'
import { oneLine } from '../plain-text.ts'
import type { Given } from '../values.ts'

export const events: Group = {
  name: 'events',
  summary: 'follow changes as they happen',
  commands: [
    {
      words: 'tail',
      args: '',
      tail: 'domain',
      summary: 'follow what changes in a domain until interrupted',
      example: '',
      async run(cli, given) {
        if (given.domain === undefined)
          throw new UsageError('this needs a domain: --domain, or keep one: skein context domain ID')
        await print(cli, given, {
          service: 'host',
          path: `/${encodeURIComponent(given.domain)}/events`,
          authorization: 'needed',
        })
      },
    },
    {
      words: 'tasks',
      args: '',
      tail: 'user',
      summary: 'follow tasks, runs and workers until interrupted',
      example: '',
      run: (cli, given) => print(cli, given, { service: 'manager', path: '/events', authorization: 'optional' }),
    },
  ],
}

async function print(
  cli: Cli,
  given: Given,
  request: Pick<ApiRequest, 'service' | 'path'> & { authorization: 'needed' | 'optional' },
): Promise<void> {
  await follow(cli, { method: 'GET', token: given.credential, ...request }, ({ event, data }) => {
    const value: unknown = JSON.parse(data)
    cli.output.event(value, () => `${cli.output.paint('bold', oneLine(event))}  ${oneLine(data)}`)
    return true
  })
}
