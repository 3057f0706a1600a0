/** The per-service default ports of the specification (section 1); each serves every path. */

export const SERVICE_PORTS: ReadonlyMap<number, string> = new Map([
  [9002, 'users'],
  [9000, 'clients'],
  [9006, 'clients'],
  [9005, 'channels'],
  [9009, 'readers'],
  [9013, 'bootstrap'],
  [9016, 'provision'],
  [9019, 'certs'],
  [9020, 'invitations'],
  [8189, 'domains'],
])
