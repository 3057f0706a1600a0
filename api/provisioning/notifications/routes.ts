/** Subscriptions to notifications (contract section 13). */
import { Type } from 'typebox'
import { Id, MessageBody, originOf } from '#api/identity/index.ts'
import { NoBody, responses } from '#core/http/index.ts'
import type { RoutePlugin } from '#core/http/index.ts'
import {
  ConfirmQuery,
  DeadLetterPage,
  DeadLetterQuery,
  NewSubscription,
  Subscription,
  SubscriptionPage,
  SubscriptionQuery,
  presentDeadLetter,
  presentSubscription,
} from './schema.ts'
import type { SubscriptionsService } from './service.ts'

const tags = ['subscriptions']
const config = { action: 'subscription.manage' }
const params = Type.Object({ subscription_id: Id })

export function subscriptionRoutes(
  subscriptions: SubscriptionsService,
  signingSecretOf: (subscriptionId: string) => string,
): RoutePlugin {
  return (app) => {
    app.post(
      '/subscriptions',
      {
        config: { ...config, location: '/subscriptions/{id}' },
        schema: {
          tags,
          summary: 'Be told of the messages of a channel',
          description:
            'By mail, or by a signed post to an https address. Takes `subscribe` on the channel, now and at every delivery. An email address that is not the verified one of the caller is sent a link first: until it is followed, the subscription is pending.',
          body: NewSubscription,
          response: responses(
            { 201: NoBody },
            'unauthenticated',
            'forbidden',
            'not_found',
            'conflict',
            'unprocessable',
          ),
        },
      },
      async (request, reply) => {
        const id = await subscriptions.create(request.principal, request.body)
        return await reply.code(201).header('Location', `/subscriptions/${id}`).send()
      },
    )
    app.get(
      '/subscriptions',
      {
        config,
        schema: {
          tags,
          summary: "List the caller's subscriptions",
          querystring: SubscriptionQuery,
          response: responses({ 200: SubscriptionPage }, 'unauthenticated', 'not_found'),
        },
      },
      async (request) => {
        const { items, ...page } = await subscriptions.list(request.principal, request.query)
        return { ...page, subscriptions: items.map((one) => presentSubscription(one, signingSecretOf(one.id))) }
      },
    )
    app.get(
      '/subscriptions/confirm',
      {
        config: { isPublic: true },
        schema: {
          tags,
          summary: 'Follow the link with which an email address agrees to notifications',
          querystring: ConfirmQuery,
          response: responses({ 200: MessageBody }, 'unauthenticated'),
        },
      },
      async (request) => {
        await subscriptions.confirm(request.query.token, originOf(request))
        return { message: 'notifications to this address are confirmed' }
      },
    )
    app.post(
      '/subscriptions/:subscription_id/confirmation',
      {
        config,
        schema: {
          tags,
          summary: 'Send the link again with which the email address of a subscription agrees',
          description: 'Three an hour to one address, 20 an hour of one user.',
          params,
          response: responses({ 200: MessageBody }, 'unauthenticated', 'not_found', 'rate_limited'),
        },
      },
      async (request) => {
        const outcome = await subscriptions.sendConfirmation(request.principal, request.params.subscription_id)
        return { message: outcome === 'sent' ? 'the link is on its way' : 'the address is confirmed already' }
      },
    )
    app.get(
      '/subscriptions/:subscription_id',
      {
        config,
        schema: {
          tags,
          summary: 'View a subscription',
          params,
          response: responses({ 200: Subscription }, 'unauthenticated', 'not_found'),
        },
      },
      async (request) => {
        const found = await subscriptions.get(request.principal, request.params.subscription_id)
        return presentSubscription(found, signingSecretOf(found.id))
      },
    )
    app.delete(
      '/subscriptions/:subscription_id',
      {
        config,
        schema: {
          tags,
          summary: 'End a subscription, and forget what waits to be delivered',
          params,
          response: responses({ 204: NoBody }, 'unauthenticated', 'not_found'),
        },
      },
      async (request, reply) => {
        await subscriptions.remove(request.principal, request.params.subscription_id)
        return await reply.code(204).send()
      },
    )
    app.get(
      '/subscriptions/:subscription_id/dead-letters',
      {
        config,
        schema: {
          tags,
          summary: 'List what could not be delivered and was given up',
          params,
          querystring: DeadLetterQuery,
          response: responses({ 200: DeadLetterPage }, 'unauthenticated', 'not_found'),
        },
      },
      async (request) => {
        const id = request.params.subscription_id
        const { items, ...page } = await subscriptions.deadLetters(request.principal, id, request.query)
        return { ...page, dead_letters: items.map(presentDeadLetter) }
      },
    )
  }
}
