//! The Vulkan instance: the loader, and the messages of validation layers.

use std::borrow::Cow;
use std::ffi::{CStr, c_void};

use ash::{Entry, ext, vk};

use crate::error::{Called, VulkanError};
use crate::options::MessageHook;

/// The version that everything here is written against.
pub(crate) const API_VERSION: u32 = vk::API_VERSION_1_3;

/// An instance with its loader.
pub(crate) struct Instance {
    pub(crate) raw: ash::Instance,
    messenger: Option<(ext::debug_utils::Instance, vk::DebugUtilsMessengerEXT)>,
    /// Called by the messenger; boxed so that its address stays.
    _hook: Option<Box<MessageHook>>,
    /// Unloads the library when it goes, so it goes last.
    _entry: Entry,
}

impl std::fmt::Debug for Instance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Instance")
    }
}

impl Instance {
    /// Opens the loader and makes an instance.
    pub(crate) fn new(hook: Option<MessageHook>) -> Result<Instance, VulkanError> {
        // SAFETY: the system's Vulkan loader is trusted to be one.
        let entry = unsafe { Entry::load() }.map_err(|e| VulkanError::Loader(e.to_string()))?;
        // SAFETY: a loader function without preconditions.
        let version = unsafe { entry.try_enumerate_instance_version() }
            .called("vkEnumerateInstanceVersion")?
            .unwrap_or(vk::API_VERSION_1_0);
        if version < API_VERSION {
            let found = (vk::api_version_major(version), vk::api_version_minor(version));
            let what = format!("the loader offers {}.{}, 1.3 is needed", found.0, found.1);
            return Err(VulkanError::Loader(what));
        }
        // SAFETY: as above.
        let offered = unsafe { entry.enumerate_instance_extension_properties(None) }
            .called("vkEnumerateInstanceExtensionProperties")?;
        let has = |name: &CStr| {
            offered.iter().any(|e| e.extension_name_as_c_str().is_ok_and(|n| n == name))
        };
        let hook = hook.filter(|_| has(ext::debug_utils::NAME)).map(Box::new);
        let mut extensions = Vec::new();
        let mut flags = vk::InstanceCreateFlags::empty();
        if hook.is_some() {
            extensions.push(ext::debug_utils::NAME.as_ptr());
        }
        if has(ash::khr::portability_enumeration::NAME) {
            extensions.push(ash::khr::portability_enumeration::NAME.as_ptr());
            flags |= vk::InstanceCreateFlags::ENUMERATE_PORTABILITY_KHR;
        }
        let app = vk::ApplicationInfo::default()
            .application_name(c"infr")
            .engine_name(c"infr")
            .api_version(API_VERSION);
        let mut messages = hook.as_deref().map(messenger_info);
        let mut info = vk::InstanceCreateInfo::default()
            .flags(flags)
            .application_info(&app)
            .enabled_extension_names(&extensions);
        if let Some(messages) = &mut messages {
            info = info.push_next(messages);
        }
        // SAFETY: all pointers of `info` live until the call returns.
        let raw = unsafe { entry.create_instance(&info, None) }.called("vkCreateInstance")?;
        let mut instance = Instance { raw, messenger: None, _hook: hook, _entry: entry };
        if let Some(hook) = instance._hook.as_deref() {
            let debug = ext::debug_utils::Instance::new(&instance._entry, &instance.raw);
            // SAFETY: the hook that the callback gets lives in `instance`, longer than the messenger.
            let messenger =
                unsafe { debug.create_debug_utils_messenger(&messenger_info(hook), None) }
                    .called("vkCreateDebugUtilsMessengerEXT")?;
            instance.messenger = Some((debug, messenger));
        }
        Ok(instance)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: devices hold the instance by reference counting, so none is left; each handle is destroyed once.
        unsafe {
            if let Some((debug, messenger)) = self.messenger.take() {
                debug.destroy_debug_utils_messenger(messenger, None);
            }
            self.raw.destroy_instance(None);
        }
    }
}

fn messenger_info(hook: &MessageHook) -> vk::DebugUtilsMessengerCreateInfoEXT<'static> {
    vk::DebugUtilsMessengerCreateInfoEXT::default()
        .message_severity(
            vk::DebugUtilsMessageSeverityFlagsEXT::WARNING
                | vk::DebugUtilsMessageSeverityFlagsEXT::ERROR,
        )
        .message_type(
            vk::DebugUtilsMessageTypeFlagsEXT::VALIDATION
                | vk::DebugUtilsMessageTypeFlagsEXT::PERFORMANCE,
        )
        .pfn_user_callback(Some(on_message))
        .user_data(std::ptr::from_ref(hook).cast_mut().cast::<c_void>())
}

unsafe extern "system" fn on_message(
    _severity: vk::DebugUtilsMessageSeverityFlagsEXT,
    _kind: vk::DebugUtilsMessageTypeFlagsEXT,
    data: *const vk::DebugUtilsMessengerCallbackDataEXT<'_>,
    user: *mut c_void,
) -> vk::Bool32 {
    // SAFETY: the layer passes a valid message, and the hook given when the messenger was made.
    let (data, hook) = unsafe { (&*data, &*user.cast::<MessageHook>()) };
    // SAFETY: names of messages are strings or null.
    let (id, text) = unsafe {
        let text = |p: *const std::ffi::c_char| {
            if p.is_null() { Cow::Borrowed("") } else { CStr::from_ptr(p).to_string_lossy() }
        };
        (text(data.p_message_id_name), text(data.p_message))
    };
    hook(&format!("{id}: {text}"));
    vk::FALSE
}
