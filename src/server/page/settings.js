/* settings.js: the settings, which all tabs share, and their dialog. Changes take effect at
 * once. */
const defaultSettings = { system: '', key: '', theme: 'auto', folded: false, thinks: true };
let settings = { ...defaultSettings, ...storage.get('settings', {}) };

const dark = matchMedia('(prefers-color-scheme: dark)');
function applyTheme() {
    const isDark = settings.theme === 'dark' || (settings.theme === 'auto' && dark.matches);
    document.documentElement.dataset.theme = isDark ? 'dark' : 'light';
    picture.refresh();
}
applyTheme();
dark.addEventListener('change', applyTheme);

function fillSettings() {
    $('set-system').value = settings.system;
    $('set-key').value = settings.key;
    $('set-folded').checked = settings.folded;
    $('set-thinks').checked = settings.thinks;
    for (const name of numbers) $(`set-${name}`).value = settings[name] ?? '';
    $('settings-form').elements.theme.value = settings.theme;
}
function openSettings(focus) {
    fillSettings();
    if (!$('settings').open) $('settings').showModal();
    if (focus) $(focus).focus();
}
function changeSettings(next) {
    settings = next;
    storage.set('settings', settings);
    applyTheme();
}
$('settings-open').addEventListener('click', () => openSettings());
$('settings-form').addEventListener('input', () => {
    const next = {
        ...settings,
        system: $('set-system').value,
        key: $('set-key').value.trim(),
        theme: $('settings-form').elements.theme.value,
        folded: $('set-folded').checked,
        thinks: $('set-thinks').checked,
    };
    for (const name of numbers) {
        const field = $(`set-${name}`);
        if (field.value === '' || !field.checkValidity()) delete next[name];
        else next[name] = Number(field.value);
    }
    changeSettings(next);
});
$('settings-reset').addEventListener('click', () => {
    changeSettings({ ...defaultSettings, key: settings.key, model: settings.model });
    fillSettings();
});
$('models').addEventListener('change', () => {
    changeSettings({ ...settings, model: $('models').value });
    server = { model: settings.model }; /* a message may be sent before the server has answered */
    connect();
});
$('settings').addEventListener('close', () => {
    if (!server || needsKey) connect();
});
addEventListener('storage', (e) => {
    /* another tab changed the settings */
    if (e.key !== 'powerinfer.settings') return;
    settings = { ...defaultSettings, ...storage.get('settings', {}) };
    applyTheme();
    if ($('settings').open) fillSettings();
});
