/** `skein subscription`: notifications. */
import type { Group } from '../shared/command.ts'
import { deadLetterCommands } from './dead-letters.ts'

export const subscription: Group = {
  name: 'subscription',
  summary: 'notifications about messages',
  columns: ['id', 'topic', 'contact', 'status', 'last_error.reason', 'owner_id'],
  commands: [
    {
      words: 'create',
      args: '<topic> <contact>',
      tail: 'user',
      summary: 'notify a contact (email, https) of messages on a topic',
      example: '<channel_id>.alarms ops@example.com',
      answer: 'created',
      call: {
        method: 'POST',
        service: 'host',
        path: '/subscriptions',
        body: ({ args }) => ({ topic: args['topic'], contact: args['contact'] }),
      },
    },
    {
      words: 'get all',
      args: '',
      tail: 'user',
      summary: 'list subscriptions; --topic, --contact',
      example: '--contact ops@example.com',
      call: {
        method: 'GET',
        service: 'host',
        path: '/subscriptions',
        query: ['limit', 'offset', 'topic', 'contact'],
      },
    },
    {
      words: 'get',
      args: '<subscription_id>',
      tail: 'user',
      summary: 'show a subscription',
      example: '<subscription_id>',
      call: { method: 'GET', service: 'host', path: '/subscriptions/{subscription_id}' },
    },
    {
      words: 'sendconfirmation',
      args: '<subscription_id>',
      tail: 'user',
      summary: 'send the confirmation link of an email address again',
      example: '<subscription_id>',
      answer: 'ok',
      call: { method: 'POST', service: 'host', path: '/subscriptions/{subscription_id}/confirmation' },
    },
    {
      words: 'remove',
      args: '<subscription_id>',
      tail: 'user',
      summary: 'end a subscription',
      example: '<subscription_id>',
      answer: 'ok',
      call: { method: 'DELETE', service: 'host', path: '/subscriptions/{subscription_id}' },
    },
    ...deadLetterCommands('a subscription', {
      path: '/subscriptions/{subscription_id}',
      name: 'subscription_id',
      service: 'host',
    }),
  ],
}
