/* One rank of the test of clusters: cluster.mjs MODEL RANKS [send]. RANKS `fail` or `abort`: calls
 * the function of this name and ends; `send`: rank 0 sends the model. */
import * as pi from 'powerinfer';

const [file, n, how] = process.argv.slice(2);
const cluster = await pi.Cluster.open({ timeout: 20 });
if (n === 'fail') {
    cluster.fail();
    cluster.close();
    process.exit(0);
}
if (n === 'abort') {
    cluster.abort('no reason');
    console.log('not here');
}
if (cluster.size() !== Number(n)) throw new Error(`${cluster.size()} ranks`);
const receives = cluster.rank() > 0 && how === 'send';
const model = receives ? await cluster.receive() : await pi.Model.open(file);
const cpu = { device: pi.PI_DEVICE_CPU, n_threads: 1 };
if (cluster.rank() > 0) {
    await cluster.work(model, cpu);
    cluster.close();
} else {
    const context = await pi.Context.create(model, { ...cpu, cluster });
    cluster.close(); // the context needs it
    const sessions = [];
    for (let i = 0; i < context.passes(); i++) {
        const session = await pi.Session.create(context, 64);
        sessions.push(session);
        await context.forward_begin([{ session, tokens: [1, 2, 3], logits: pi.PI_LOGITS_LAST }]);
    }
    for (const session of sessions) {
        await context.forward_end();
        console.log(context.logits().slice(0, 8).join(' '));
        session.close();
    }
    const ranks = await context.get_ranks();
    console.log(ranks.map((r) => `${r.first_layer}-${r.end_layer}`).join(' '));
    context.close();
}
