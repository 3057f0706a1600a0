/** `skein provision`. */
import type { Group } from '../shared/command.ts'
import { connectFromFile, createFromFile } from '../shared/provisioning.ts'
import { arg } from '../shared/values.ts'
import { runTrial } from './provision-trial.ts'

export const provision: Group = {
  name: 'provision',
  summary: 'many entities from files, or one device in one call',
  description:
    'Files end in .csv or .json. CSV has a header (name, id, secret, tags, metadata, …; client_id, channel_id), or names in its first column, or client and channel ids. What cannot be used is named by line, and nothing is created unless --skip-bad leaves it out.',
  columns: ['id', 'name', 'credentials.secret', 'status'],
  commands: [
    {
      words: 'clients',
      args: '<file>',
      tail: 'domain',
      summary: 'make the clients of a file',
      example: 'clients.csv',
      flags: ['skip-bad'],
      run: (cli, given) => createFromFile(cli, given, 'clients', arg(given, 'file')),
    },
    {
      words: 'things',
      args: '<file>',
      tail: 'domain',
      summary: 'the same under the older name',
      example: 'things.csv',
      flags: ['skip-bad'],
      isOlder: true,
      run: (cli, given) => createFromFile(cli, given, 'clients', arg(given, 'file')),
    },
    {
      words: 'channels',
      args: '<file>',
      tail: 'domain',
      summary: 'make the channels of a file',
      example: 'channels.json',
      flags: ['skip-bad'],
      run: (cli, given) => createFromFile(cli, given, 'channels', arg(given, 'file')),
    },
    {
      words: 'connect',
      args: '<file>',
      tail: 'domain',
      summary: 'connect every client of a file to every channel of it; with --pairs the two of each line',
      example: 'connections.csv',
      flags: ['skip-bad', 'pairs'],
      run: (cli, given) => connectFromFile(cli, given, arg(given, 'file')),
    },
    {
      words: 'mapping',
      args: '<external_id> <external_key>',
      tail: 'domain',
      summary: 'make everything that one device needs, after the layout of the provision service',
      example: '09:6:0:sb:sa key --name gateway',
      call: {
        method: 'POST',
        service: 'provision',
        path: '/{domain}/mapping',
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
      summary: 'try the platform: make a user, a domain, two clients and channels, and send messages',
      example: '',
      run: runTrial,
    },
  ],
}
