/** `skein provision`. */
import type { Group } from '../shared/command.ts'
import { connectFromFile, createFromFile } from '../shared/provisioning.ts'
import { arg } from '../shared/values.ts'
import { runTrial } from './provision-trial.ts'

export const provision: Group = {
  name: 'provision',
  summary: 'many entities from files, or one device in one call',
  description:
    'Files end in .csv or .json. CSV has a header (name, id, secret, tags, metadata, …; client_id, channel_id), or names in its first column, or client and channel ids. Invalid entries are reported with their line, and nothing is created unless --skip-bad skips them.',
  columns: ['id', 'name', 'credentials.secret', 'status'],
  commands: [
    {
      words: 'clients',
      args: '<file>',
      tail: 'domain',
      summary: 'create the clients of a file',
      example: 'clients.csv',
      flags: ['skip-bad', 'dry-run'],
      run: (cli, given) => createFromFile(cli, given, 'clients', arg(given, 'file')),
    },
    {
      words: 'things',
      args: '<file>',
      tail: 'domain',
      summary: 'create the clients of a file (older name)',
      example: 'things.csv',
      flags: ['skip-bad', 'dry-run'],
      isOlder: true,
      run: (cli, given) => createFromFile(cli, given, 'clients', arg(given, 'file')),
    },
    {
      words: 'channels',
      args: '<file>',
      tail: 'domain',
      summary: 'create the channels of a file',
      example: 'channels.json',
      flags: ['skip-bad', 'dry-run'],
      run: (cli, given) => createFromFile(cli, given, 'channels', arg(given, 'file')),
    },
    {
      words: 'connect',
      args: '<file>',
      tail: 'domain',
      summary: 'connect every client of a file to every channel of it; with --pairs only the two of each line',
      example: 'connections.csv',
      flags: ['skip-bad', 'pairs', 'dry-run'],
      run: (cli, given) => connectFromFile(cli, given, arg(given, 'file')),
    },
    {
      words: 'mapping',
      args: '<external_id> <external_key>',
      tail: 'domain',
      summary:
        'create the clients, channels, connections and certificate of one device, as the layout of the provision service defines',
      example: '09:6:0:sb:sa a-key-of-16-characters --name gateway',
      flags: ['dry-run'],
      call: {
        method: 'POST',
        service: 'provision',
        path: '/{domain}/mapping',
        query: ['dry-run'],
        auth: 'optional',
        body: ({ args, flags }) => ({
          external_id: args['external_id'],
          external_key: args['external_key'],
          ...(flags.get('name') === undefined ? {} : { name: flags.get('name') }),
        }),
      },
    },
    {
      words: 'layout',
      args: '',
      tail: 'domain',
      summary: 'show the bootstrap content of the layout',
      example: '',
      call: { method: 'GET', service: 'provision', path: '/{domain!}/mapping' },
    },
    {
      words: 'test',
      args: '',
      tail: 'none',
      summary: 'test the platform: create a user, a domain, two clients and channels, and send messages',
      example: '',
      run: runTrial,
    },
  ],
}
