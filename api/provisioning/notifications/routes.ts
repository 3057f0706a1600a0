/** Routes of subscriptions to notifications (contract section 13). */
import { Type } from 'typebox'
import { Id, MessageBody, originOf } from '#api/identity/index.ts'
import { DeadLetterSelection, DeadLettersChanged, NoBody, responses } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'
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
          summary: 'Subscribe to notifications about messages',
          description:
            'Sends mails, or signed webhook requests to an https URL. Requires `subscribe` on the channel, now and at every delivery. An email address other than the verified one of the caller first gets a confirmation link; the subscription is pending until it is opened.',
          body: NewSubscription,
          response: responses({ 201: NoBody }, 'not_found', 'conflict', 'unprocessable'),
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
          response: responses({ 200: SubscriptionPage }, 'not_found'),
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
          summary: 'Confirm an email address with the token from the mail',
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
          summary: 'Send the confirmation link of a subscription again',
          description: 'Limited to 3 links an hour to one address and 20 an hour by one user.',
          params,
          response: responses({ 200: MessageBody }, 'not_found', 'rate_limited'),
        },
      },
      async (request) => {
        const outcome = await subscriptions.sendConfirmation(request.principal, request.params.subscription_id)
        return { message: outcome === 'sent' ? 'the link was sent' : 'the address is already confirmed' }
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
          response: responses({ 200: Subscription }, 'not_found'),
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
          summary: 'Delete a subscription and its waiting deliveries',
          params,
          response: responses({ 204: NoBody }, 'not_found'),
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
          summary: 'List the dead letters of a subscription',
          params,
          querystring: DeadLetterQuery,
          response: responses({ 200: DeadLetterPage }, 'not_found'),
        },
      },
      async (request) => {
        const id = request.params.subscription_id
        const { items, ...page } = await subscriptions.deadLetters(request.principal, id, request.query)
        return { ...page, dead_letters: items.map(presentDeadLetter) }
      },
    )
    app.post(
      '/subscriptions/:subscription_id/dead-letters/retry',
      {
        config,
        schema: {
          tags,
          summary: 'Deliver dead letters of a subscription again',
          params,
          body: DeadLetterSelection,
          response: responses({ 200: DeadLettersChanged }, 'not_found'),
        },
      },
      async (request) => ({
        count: await subscriptions.retryDeadLetters(request.principal, request.params.subscription_id, request.body),
      }),
    )
    app.post(
      '/subscriptions/:subscription_id/dead-letters/discard',
      {
        config,
        schema: {
          tags,
          summary: 'Discard dead letters of a subscription',
          params,
          body: DeadLetterSelection,
          response: responses({ 200: DeadLettersChanged }, 'not_found'),
        },
      },
      async (request) => ({
        count: await subscriptions.discardDeadLetters(request.principal, request.params.subscription_id, request.body),
      }),
    )
  }
}
