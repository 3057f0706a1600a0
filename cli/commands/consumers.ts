/** `skein consumers`: named consumers of messages. */
import type { Group } from '../shared/command.ts'
import { arg, jsonObject, list } from '../shared/values.ts'
import type { Given } from '../shared/values.ts'
import { deadLetterCommands } from './dead-letters.ts'

const CONSUMERS = '/{domain!}/consumers'
const ONE = `${CONSUMERS}/{consumer}`

const positions = (given: Given) => ({ positions: list(given, 'positions') })

export const consumers: Group = {
  name: 'consumers',
  summary: 'named consumers of messages',
  description:
    'A consumer is a position in the messages of its channels. What it was given is delivered again until it is acknowledged. <consumer> is its name or id.',
  columns: ['id', 'name', 'position', 'behind_since', 'in_flight', 'dead_letters', 'last_error.reason'],
  commands: [
    {
      words: 'create',
      args: '<JSON_consumer>',
      tail: 'domain',
      summary: 'create a consumer; JSON, or @file',
      example: `'{"name": "readings", "channels": ["<channel_id>"], "from": "earliest"}'`,
      answer: 'created',
      call: {
        method: 'POST',
        service: 'host',
        path: CONSUMERS,
        body: (given) => jsonObject(given, 'JSON_consumer'),
      },
    },
    {
      words: 'get all',
      args: '',
      tail: 'domain',
      summary: 'list consumers',
      example: '--name readings',
      call: { method: 'GET', service: 'host', path: CONSUMERS, query: ['limit', 'offset', 'name'] },
    },
    {
      words: 'get',
      args: '<consumer>',
      tail: 'domain',
      summary: 'show a consumer, and how far it is behind',
      example: '<consumer>',
      call: { method: 'GET', service: 'host', path: ONE },
    },
    {
      words: 'update',
      args: '<consumer> <JSON_consumer>',
      tail: 'domain',
      summary: 'change fields of a consumer; its position is unchanged',
      example: `<consumer> '{"ack_wait": "1m"}'`,
      call: {
        method: 'PATCH',
        service: 'host',
        path: ONE,
        body: (given) => jsonObject(given, 'JSON_consumer'),
      },
    },
    {
      words: 'remove',
      args: '<consumer>',
      tail: 'domain',
      summary: 'delete a consumer and its dead letters',
      example: '<consumer>',
      answer: 'ok',
      call: { method: 'DELETE', service: 'host', path: ONE },
    },
    {
      words: 'pull',
      args: '<consumer>',
      tail: 'domain',
      summary: 'take its next messages; with --timeout, wait for the first one',
      example: '<consumer> --limit 10 --timeout 1s',
      flags: ['timeout'],
      columns: ['position', 'attempts', 'channel', 'subtopic', 'publisher', 'payload'],
      call: {
        method: 'GET',
        service: 'host',
        path: `${ONE}/messages`,
        query: ['limit'],
        parameters: ({ flags }) => ({ wait: flags.get('timeout') }),
      },
    },
    {
      words: 'ack',
      args: '<consumer> <positions>',
      tail: 'domain',
      summary: 'acknowledge messages; positions are separated by commas',
      example: '<consumer> <position>',
      call: { method: 'POST', service: 'host', path: `${ONE}/ack`, body: positions },
    },
    {
      words: 'nack',
      args: '<consumer> <positions>',
      tail: 'domain',
      summary: 'have messages delivered again; --delay, --description for the reason',
      example: "<consumer> <position> --delay 5s --description 'no such pump'",
      flags: ['delay', 'description'],
      call: {
        method: 'POST',
        service: 'host',
        path: `${ONE}/nack`,
        body: (given) => {
          const [delay, reason] = [given.flags.get('delay'), given.flags.get('description')]
          return {
            ...positions(given),
            ...(delay === undefined ? {} : { delay }),
            ...(reason === undefined ? {} : { reason }),
          }
        },
      },
    },
    {
      words: 'seek',
      args: '<consumer> <earliest|latest|time|position>',
      tail: 'domain',
      summary: 'move a consumer; what is in flight is forgotten',
      example: '<consumer> earliest',
      call: {
        method: 'POST',
        service: 'host',
        path: `${ONE}/seek`,
        body: (given) => ({ from: arg(given, 'earliest|latest|time|position') }),
      },
    },
    ...deadLetterCommands('a consumer', { path: ONE, name: 'consumer', tail: 'domain', service: 'host' }),
  ],
}
