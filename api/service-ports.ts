/**
 * Default ports of the services of Magistrala and SuperMQ, old and new, which the configuration files of their clients name. Each of
 * them serves every path.
 */

export const SERVICE_PORTS: ReadonlyMap<number, string> = new Map([
  [9002, 'users'],
  [9000, 'clients'],
  [9006, 'clients'],
  [9005, 'channels'],
  [9003, 'domains'],
  [9004, 'groups'],
  [9009, 'readers'],
  [9011, 'readers'],
  [9013, 'bootstrap'],
  [9016, 'provision'],
  [9019, 'certs'],
  [9020, 'invitations'],
  [9021, 'journal'],
  [8008, 'http'],
  [8189, 'domains'],
])
